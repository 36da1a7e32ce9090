"""What a log does when nothing fails."""

from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import pytest
import xxhash

from samovar.base.errors import ConfigError
from samovar.pool.disk.folder import available_bytes
from samovar.pool.disk.format import BLOCK_BYTES, FORMAT_VERSION, superblock
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.record import Block
from tests.pool.disk.faults import FaultFiles
from tests.pool.disk.helpers import (
    CAPACITY_BYTES,
    NAMESPACE,
    RECORD_BYTES,
    SEGMENT_BYTES,
    STRIDE_BYTES,
    abandon,
    block,
    data_of,
    key_of,
    open_log,
    physical_bytes,
    read,
    segment_paths,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.write([block(n) for n in range(20)]) == ("ok",) * 20
        assert all(read(log, n) == data_of(n) for n in range(20))
        assert read(log, 20) == "missing"
        stats = log.stats()
        assert stats.num_records == 20 and stats.live_bytes == 20 * STRIDE_BYTES
        assert stats.written_records == 20 and stats.payload_bytes == 20 * RECORD_BYTES
        assert stats.read_records == 20 and stats.read_bytes == 20 * RECORD_BYTES and not stats.failures
        assert stats.physical_bytes == physical_bytes(tmp_path) >= stats.live_bytes
        log.check()


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("num_bytes", [1, 15, 4095, 4096, 4097, 10_000, 16_384])
@pytest.mark.parametrize("shift", [0, 1, 512])
def test_any_length_and_any_address(tmp_path: Path, num_bytes: int, shift: int, direct: bool) -> None:
    """And nothing beside the record is written to."""
    with open_log(tmp_path, record_bytes=16_384, segment_bytes=None, direct=direct) as log:
        log.write([block(n, num_bytes=num_bytes) for n in range(5)])
        memory = np.full((5, num_bytes + 2 * BLOCK_BYTES), 7, np.uint8)
        start = (-memory.ctypes.data) % BLOCK_BYTES + shift
        buffers = [row[start : start + num_bytes] for row in memory]
        assert log.read_many_into([key_of(n) for n in range(5)], buffers) == ("ok",) * 5
        for n, (row, buffer) in enumerate(zip(memory, buffers, strict=True)):
            assert buffer.tobytes() == data_of(n, 0, num_bytes)
            assert (row[:start] == 7).all() and (row[start + num_bytes :] == 7).all()


def test_a_batch_is_one_write_and_one_sync_and_neighbours_one_read(tmp_path: Path) -> None:
    files = FaultFiles()
    with open_log(tmp_path, files=files, segment_bytes=None, capacity_bytes=16 << 20) as log:
        log.write([block(99)])
        before = dict(files.calls)
        log.write([block(n) for n in range(8)])
        assert files.calls["write"] - before["write"] == 1 and files.calls["sync"] - before["sync"] == 1
        before = dict(files.calls)
        buffers = [aligned_buffer(RECORD_BYTES) for _ in range(8)]
        assert log.read_many_into([key_of(n) for n in reversed(range(8))], buffers) == ("ok",) * 8
        assert files.calls["read"] - before["read"] == 1
        assert [bytes(buffer) for buffer in buffers] == [data_of(n) for n in reversed(range(8))]


def test_the_newest_of_a_key_wins_also_inside_a_batch_and_after_a_restart(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(1, 0), block(1, 1), block(2, 0)])
        assert read(log, 1) == data_of(1, 1)
        log.write([block(1, 2)])
        assert read(log, 1) == data_of(1, 2) and log.stats().num_records == 2
        log.check()
    with open_log(tmp_path) as log:
        assert read(log, 1) == data_of(1, 2) and read(log, 2) == data_of(2)
        log.check()


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_finds_everything_in_the_order_of_writing(tmp_path: Path, crash: bool) -> None:
    log = open_log(tmp_path)
    numbers = [*range(30, 60), *range(10)]
    log.write([block(n, stream=f"stream {n % 3}") for n in numbers[:17]])
    log.write([block(n, stream=f"stream {n % 3}") for n in numbers[17:]])
    before = log.recovered()
    (abandon if crash else DiskLog.close)(log)
    with open_log(tmp_path) as log:
        found = log.recovered()
        assert found == before and [info.key for info in found] == [key_of(n) for n in numbers]
        assert found[0].parent == key_of(29) and found[-10].parent == b""
        assert [info.stream for info in found[:3]] == ["stream 0", "stream 1", "stream 2"]
        assert all(info.num_bytes == RECORD_BYTES for info in found)
        assert all(read(log, n) == data_of(n) for n in numbers)
        log.check()
        assert log.write([block(0, 1)]) == ("ok",)
        assert log.recovered()[-1].sequence > found[-1].sequence


@pytest.mark.parametrize("punching", [True, False])
def test_nothing_deleted_comes_back(tmp_path: Path, punching: bool) -> None:
    with open_log(tmp_path, punching=punching) as log:
        log.write([block(n) for n in range(40)])
        log.delete([key_of(n) for n in range(0, 40, 2)] + [key_of(0), key_of(77)])
        assert read(log, 4) == "missing" and read(log, 5) == data_of(5)
        assert log.stats().num_owed_tombstones == 20
        assert log.flush() == "ok"
        log.check()
        abandon(log)
    for _ in range(2):
        log = open_log(tmp_path, punching=punching)
        assert [info.key for info in log.recovered()] == [key_of(n) for n in range(1, 40, 2)]
        log.check()
        abandon(log)


def test_deletions_become_durable_with_the_next_write(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.write([block(1), block(2)])
    log.delete([key_of(1)])
    log.write([block(3)])
    abandon(log)
    with open_log(tmp_path) as log:
        assert [info.key for info in log.recovered()] == [key_of(2), key_of(3)]


def test_a_key_can_be_written_again_after_it_was_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for version in range(5):
        assert log.write([block(1, version)]) == ("ok",)
        log.delete([key_of(1)])
    log.write([block(1, 9)])
    log.flush()
    abandon(log)
    with open_log(tmp_path) as log:
        assert read(log, 1) == data_of(1, 9)


def test_a_full_log_says_so_and_takes_records_again_after_deletions(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.max_records * STRIDE_BYTES <= CAPACITY_BYTES
        number = 0
        while log.write([block(number)]) == ("ok",):
            number += 1
        assert number == log.max_records
        assert log.write([block(n) for n in range(number, number + 3)]) == ("full",) * 3
        assert log.write([block(0, 1)]) == ("ok",), "a key that is replaced needs no room"
        log.delete([key_of(n) for n in range(10)])
        outcomes = log.write([block(n) for n in range(1000, 1012)])
        assert outcomes == ("ok",) * 10 + ("full",) * 2
        assert log.stats().failures == {"write:full": 6}
        log.check()
    assert physical_bytes(tmp_path) <= CAPACITY_BYTES * 1.1


def test_namespaces_share_a_folder_and_nothing_else(tmp_path: Path) -> None:
    with (
        open_log(tmp_path) as one,
        DiskLog.open(str(tmp_path), b"another", 8192, CAPACITY_BYTES * 2, background=False) as two,
    ):
        one.write([block(1)])
        two.write([Block(key_of(1), b"", "", b"other" * 1000)])
        assert read(one, 1) == data_of(1) and two.recovered()[0].num_bytes == 5000
        assert one.stats().physical_bytes == physical_bytes(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([NAMESPACE.hex(), b"another".hex()])


def test_a_folder_has_one_process(tmp_path: Path) -> None:
    with open_log(tmp_path):
        with pytest.raises(ConfigError, match=f"{tmp_path} is in use"):
            open_log(tmp_path)
        script = (
            "import sys; from samovar.pool.disk.log import DiskLog; from samovar.base.errors import ConfigError\n"
            f"try: DiskLog.open(sys.argv[1], {NAMESPACE!r}, {RECORD_BYTES}, {CAPACITY_BYTES})\n"
            "except ConfigError as error: print(error)"
        )
        found = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
        assert f"{tmp_path} is in use" in found
    with open_log(tmp_path):
        pass


def test_folders_that_cannot_be_used_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file cannot be used: "):
        open_log(tmp_path / "file")
    with pytest.raises(ConfigError, match="too small for blocks of 4096 bytes: at least 655360"):
        open_log(tmp_path / "new", capacity_bytes=600_000, segment_bytes=None)
    with pytest.raises(ConfigError, match="segment_bytes is 100: it must be between 20480 and 65536"):
        open_log(tmp_path / "new", segment_bytes=100)
    with pytest.raises(ConfigError, match="namespace has 0 bytes"):
        DiskLog.open(str(tmp_path / "new"), b"", 4096, CAPACITY_BYTES)
    assert not (tmp_path / "new").exists()


def test_files_that_are_not_what_they_should_be_are_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(1)])
    with pytest.raises(ConfigError, match=r"\.seg holds blocks of 4096 bytes, this model's have 5000"):
        open_log(tmp_path, record_bytes=5000, segment_bytes=None)
    path = segment_paths(tmp_path)[0]
    text = bytearray(superblock(NAMESPACE, RECORD_BYTES, int(path.stem, 16)))

    text[24:28] = (FORMAT_VERSION + 1).to_bytes(4, "little")
    text[8:24] = xxhash.xxh3_128_digest(bytes(text[:8] + text[24:]))
    with path.open("r+b") as file:
        file.write(text)
    with pytest.raises(ConfigError, match=r"\.seg has format 2, this version reads 1"):
        open_log(tmp_path)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(1)])
    path = segment_paths(tmp_path)[0]
    (path.parent / "notes.txt").write_text("mine")
    foreign = path.parent / f"{1 << 40:016x}.seg"
    foreign.write_bytes(superblock(b"somebody else", RECORD_BYTES, 1 << 40))
    with open_log(tmp_path) as log:
        assert read(log, 1) == data_of(1)
        assert log.stats().failures["recover:foreign"] == 1
    assert (path.parent / "notes.txt").read_text() == "mine" and foreign.exists()


def test_a_closed_log_has_nothing_and_takes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, background=True)
    log.write([block(1)])
    log.close()
    log.close()
    assert read(log, 1) == "missing" and log.write([block(2)]) == ("io",) and log.flush() == "io"
    assert log.compact(1 << 20) == 0


def test_a_smaller_capacity_takes_nothing_until_enough_was_deleted(tmp_path: Path) -> None:
    with open_log(tmp_path, capacity_bytes=2 * CAPACITY_BYTES) as log:
        log.write([block(n) for n in range(2 * CAPACITY_BYTES // STRIDE_BYTES * 8 // 10)])
    with open_log(tmp_path) as log:
        found = log.recovered()
        assert len(found) > log.max_records
        assert log.write([block(5000)]) == ("full",)
        log.delete([info.key for info in found[log.max_records - 10 :]])
        assert log.write([block(5000)]) == ("ok",)
        log.check()
    assert physical_bytes(tmp_path) <= CAPACITY_BYTES * 1.1


def test_a_name_of_a_stream_that_is_too_long_is_recorded_as_unknown(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.write([block(1, stream="x" * 257), block(2, stream="ü" * 128)]) == ("ok", "ok")
    with open_log(tmp_path) as log:
        assert [info.stream for info in log.recovered()] == ["", "ü" * 128]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(1)])
        for path in [*segment_paths(tmp_path), segment_paths(tmp_path)[0].parent]:
            assert path.stat().st_mode & 0o077 == 0


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with open_log(tmp_path):
        pass
    before = open_files()
    for _ in range(3):
        with open_log(tmp_path) as log:
            log.write([block(n) for n in range(60)])
            log.delete([key_of(n) for n in range(60)])
            log.flush()
            log.compact(1 << 20)
    assert open_files() == before


def test_segments_end_where_they_should(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(n) for n in range(100)])
        footers = 3 * BLOCK_BYTES
        assert all(path.stat().st_size <= SEGMENT_BYTES + footers for path in segment_paths(tmp_path))
        assert len(segment_paths(tmp_path)) == -(-100 // ((SEGMENT_BYTES - BLOCK_BYTES) // STRIDE_BYTES))


def test_what_is_there_for_a_log_is_its_own_files_and_what_is_free(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        before = available_bytes(str(tmp_path), NAMESPACE)
        log.write([block(n) for n in range(20)])
        own = log.stats().physical_bytes
    system = os.statvfs(tmp_path)
    assert before is not None and own > 20 * STRIDE_BYTES
    after = available_bytes(str(tmp_path), NAMESPACE)
    assert after is not None and after - physical_bytes(tmp_path) <= system.f_blocks * system.f_frsize
    free = system.f_bavail * system.f_frsize
    assert abs(after - physical_bytes(tmp_path) - free) < free // 10, "others write here too"
    assert available_bytes(str(tmp_path / "nowhere"), NAMESPACE) is None
