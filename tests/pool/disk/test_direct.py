"""Large records: read and hashed at once, written past the page cache, and every fault on the way."""

from __future__ import annotations

from collections.abc import Sequence
import errno
import os
from pathlib import Path
import random
import threading
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
import pytest

from samovar.pool.disk.direct import MOST_COPIED_BYTES, DirectPages
from samovar.pool.disk.files import OsFiles
from samovar.pool.disk.format import BLOCK_BYTES
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.record import Block
from tests.pool.disk.faults import Cut, FaultFiles, Killed, always, once
from tests.pool.disk.helpers import abandon, key_of, open_log, segment_paths

LARGE = 300_000
CAPACITY = 64 << 20
LENGTHS = (65_536, 65_537, 69_632, 131_072, 262_143, 262_144, 300_000, 524_288, 700_001, 2_500_000)
needs_hashed = pytest.mark.skipif(OsFiles().hashed_from_bytes == float("inf"), reason="no such reads here")


def content(number: int, num_bytes: int = LARGE) -> NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, num_bytes, dtype=np.uint8)


def in_pages(data: NDArray[np.uint8], shift: int = 0) -> memoryview:
    memory = aligned_buffer(len(data) + shift)
    memory[shift:] = data.data
    return memory[shift:]


def record(number: int, num_bytes: int = LARGE, shift: int = 0) -> Block:
    return Block(key_of(number), b"", "s", in_pages(content(number, num_bytes), shift))


def open_large(folder: Path, files: OsFiles | None = None, record_bytes: int = max(LENGTHS)) -> DiskLog:
    return open_log(
        folder, files=files, record_bytes=record_bytes, capacity_bytes=256 << 20, segment_bytes=None, direct=True
    )


def fetch(log: DiskLog, number: int, num_bytes: int = LARGE, shift: int = 0) -> bytes | str:
    buffer = aligned_buffer(num_bytes + shift)[shift:]
    outcome = log.read_into(key_of(number), buffer)
    return bytes(buffer) if outcome == "ok" else outcome


def is_direct(log: DiskLog) -> bool:
    return log.stats().direct


@pytest.mark.parametrize("shift", [0, 100])
@pytest.mark.parametrize("hashed", [True, False])
def test_any_length_from_and_to_any_address(tmp_path: Path, shift: int, hashed: bool) -> None:
    files = OsFiles() if hashed else OsFiles(float("inf"))
    with open_large(tmp_path, files) as log:
        written = log.write([record(n, size, shift) for n, size in enumerate(LENGTHS)])
        assert written == ("ok",) * len(LENGTHS)
        for n, size in enumerate(LENGTHS):
            assert fetch(log, n, size, shift) == content(n, size).tobytes()
        memory = [aligned_buffer(size + shift + 4096) for size in LENGTHS]
        for view in memory:
            view[:] = b"\7" * len(view)
        order = random.Random(1).sample(range(len(LENGTHS)), len(LENGTHS))
        views = [memory[n][shift : shift + LENGTHS[n]] for n in order]
        assert log.read_many_into([key_of(n) for n in order], views) == ("ok",) * len(LENGTHS)
        for n, view in zip(order, views, strict=True):
            assert bytes(view) == content(n, LENGTHS[n]).tobytes()
            assert not set(memory[n][shift + LENGTHS[n] :]) - {7}, "written beyond the buffer's end"
        log.check()
    with open_large(tmp_path) as log:
        assert len(log.recovered()) == len(LENGTHS)


@needs_hashed
def test_many_at_once_from_several_segments_and_threads(tmp_path: Path) -> None:
    with open_log(tmp_path, record_bytes=LARGE, capacity_bytes=CAPACITY, segment_bytes=1 << 20) as log:
        for first in range(0, 40, 8):
            assert set(log.write([record(first + n) for n in range(8)])) == {"ok"}
        assert log.stats().num_segments > 8
        errors: list[str] = []

        def read(seed: int) -> None:
            rng = random.Random(seed)
            buffers = [aligned_buffer(LARGE) for _ in range(12)]
            for _ in range(6):
                numbers = [rng.randrange(45) for _ in range(12)]
                outcomes = log.read_many_into([key_of(n) for n in numbers], buffers)
                for n, outcome, buffer in zip(numbers, outcomes, buffers, strict=True):
                    if outcome != ("ok" if n < 40 else "missing") or (n < 40 and bytes(buffer) != content(n).tobytes()):
                        errors.append(f"{n}: {outcome}")

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors and log.stats().failures == {}


@needs_hashed
def test_damage_and_a_cut_file_cost_the_records_that_they_touch(tmp_path: Path) -> None:
    with open_large(tmp_path) as log:
        log.write([record(n) for n in range(6)])
        entries = {int.from_bytes(e.key, "big"): e for e in log._index.entries()}
        path = segment_paths(tmp_path)[0]
        with path.open("r+b") as file:
            file.seek(entries[2].offset + 299_999)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 64]))
            file.flush()
            os.fsync(file.fileno())
        os.truncate(path, entries[5].offset + 200_000)
        buffers = [aligned_buffer(LARGE) for _ in range(6)]
        outcomes = log.read_many_into([key_of(n) for n in range(6)], buffers)
        assert outcomes == ("ok", "ok", "checksum", "ok", "ok", "io")
        assert all(bytes(buffers[n]) == content(n).tobytes() for n in (0, 1, 3, 4))
        assert fetch(log, 2) == "missing" and fetch(log, 5) == "missing"
        assert log.stats().failures == {"read:checksum": 1, "read:io": 1}


@needs_hashed
def test_errors_of_single_records(tmp_path: Path) -> None:
    class Failing(FaultFiles):
        answers: ClassVar[dict[int, int]] = {}

        def read_hashed(
            self, fd: int, offsets: Sequence[int], buffers: Sequence[memoryview], bindings: Sequence[bytes]
        ) -> Sequence[bytes | int]:
            found = list(super().read_hashed(fd, offsets, buffers, bindings))
            for at, answer in self.answers.items():
                found[at] = answer
            return found

    files = Failing()
    with open_large(tmp_path, files) as log:
        log.write([record(n) for n in range(4)])
        keys, buffers = [key_of(n) for n in range(4)], [aligned_buffer(LARGE) for _ in range(4)]
        # Neither is the disk's fault: read once more, plainly.
        Failing.answers = {0: errno.EINVAL, 3: errno.EAGAIN}
        assert log.read_many_into(keys, buffers) == ("ok",) * 4
        assert all(bytes(buffers[n]) == content(n).tobytes() for n in range(4))
        Failing.answers = {1: errno.EIO}
        assert log.read_many_into(keys, buffers) == ("ok", "io", "ok", "ok")
        assert fetch(log, 1) == "missing"
        Failing.answers = {}
        files.rule = once("read", files.calls["read"], OSError(errno.EIO, "made"))
        assert log.read_many_into(keys, buffers) == ("ok", "missing", "ok", "ok"), "then each by itself"
        assert log.stats().failures == {"read:io": 1}


@needs_hashed
@pytest.mark.parametrize("alone", [True, False])
def test_a_record_that_moves_under_a_read_is_looked_up_again(tmp_path: Path, alone: bool) -> None:
    files = FaultFiles()
    with open_large(tmp_path, files) as log:
        log.write([record(n) for n in range(3)])
        begun = files.calls["read"]

        def rule(name: str, count: int) -> None:
            if name == "read" and count == begun:
                log.write([Block(key_of(1), b"", "s", in_pages(content(77)))])
                log.flush()

        files.rule = rule
        numbers = [1] if alone else [0, 1, 2]
        buffers = [aligned_buffer(LARGE) for _ in numbers]
        assert log.read_many_into([key_of(n) for n in numbers], buffers) == ("ok",) * len(numbers)
        assert bytes(buffers[numbers.index(1)]) == content(77).tobytes() and log.stats().failures == {}


def test_writes_go_past_the_page_cache_and_are_one_call(tmp_path: Path) -> None:
    used: list[int] = []

    class Watched(FaultFiles):
        def write(self, fd, buffers, offset):  # type: ignore[no-untyped-def]
            used.append(fd)
            return super().write(fd, buffers, offset)

    with open_large(tmp_path, Watched()) as log:
        log.write([record(0)])
        assert log._writer.active is not None and log._writer._active is not None
        direct, cached = log._writer.active.fd, log._writer._active.fd
        used.clear()
        assert log.write([record(1), record(2, 65_537)]) == ("ok", "ok")
        assert used == [direct if is_direct(log) else cached]
        used.clear()
        assert log.write([record(3, LARGE, 100)]) == ("ok",), "from an address inside a page"
        assert used == [cached]
        for n, size in ((1, LARGE), (2, 65_537), (3, LARGE)):
            assert fetch(log, n, size) == content(n, size).tobytes()


@pytest.mark.parametrize("cut", [0, 1, 4096, 4097, 200_000, 303_104 + 4096, 303_104 + 4097, 500_000, 700_000])
def test_a_process_killed_inside_a_write(tmp_path: Path, cut: int) -> None:
    files = FaultFiles()
    log = open_large(tmp_path, files)
    log.write([record(1)])
    files.rule = once("write", files.calls["write"], Cut(cut, Killed()))
    with pytest.raises(Killed):
        log.write([record(2), record(3)])
    abandon(log)
    stride = BLOCK_BYTES + -(-LARGE // BLOCK_BYTES) * BLOCK_BYTES
    with open_large(tmp_path) as log:
        assert {int.from_bytes(info.key, "big") for info in log.recovered()} == {1, *range(2, 2 + cut // stride)}
        assert fetch(log, 1) == content(1).tobytes()
        log.check()


def test_a_write_of_which_the_disk_takes_a_part_is_continued(tmp_path: Path) -> None:
    class Short(OsFiles):
        def write(self, fd, buffers, offset):  # type: ignore[no-untyped-def]
            first = memoryview(buffers[0])
            return super().write(fd, [first[: max(4096, len(first) // 2 // 4096 * 4096)]], offset)

    with open_large(tmp_path, Short()) as log:
        assert log.write([record(n) for n in range(3)]) == ("ok",) * 3
        assert all(fetch(log, n) == content(n).tobytes() for n in range(3))
        log.check()


def test_a_disk_without_space(tmp_path: Path) -> None:
    files = FaultFiles()
    with open_large(tmp_path, files) as log:
        log.write([record(1)])
        files.rule = always("write", OSError(errno.ENOSPC, "made"))
        assert log.write([record(2)]) == ("full",)
        files.rule = lambda name, count: None
        assert log.write([record(2)]) == ("ok",) and fetch(log, 2) == content(2).tobytes()
        log.check()


def test_what_is_arranged_is_the_same_bytes_in_whole_pages() -> None:
    rng, pages = random.Random(3), DirectPages()
    for _ in range(60):
        buffers: list[bytes | memoryview] = []
        for number in range(rng.randrange(1, 8)):
            buffers.append(rng.randbytes(BLOCK_BYTES))
            size = rng.choice([1, 100, 4096, 5000, 8192, 70_000, 131_072])
            buffers.append(in_pages(content(number, size), rng.choice([0, 0, 8]) if size < MOST_COPIED_BYTES else 0))
            if size % BLOCK_BYTES:
                buffers.append(bytes(-size % BLOCK_BYTES))
        parts = pages.arranged(buffers)
        assert parts is not None
        assert b"".join(parts) == b"".join(bytes(buffer) for buffer in buffers)
        for part in parts:
            assert len(part) % BLOCK_BYTES == 0 and np.frombuffer(part, np.uint8).ctypes.data % BLOCK_BYTES == 0
    large = in_pages(content(1, 2 * MOST_COPIED_BYTES), 8)
    assert pages.arranged([large]) is None
