"""Calls that fail, writes that are cut off, files that are damaged: outcomes and counters, never a wrong byte."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
import random
import shutil

import numpy as np
import pytest

from samovar.pool.disk.health import Health
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.record import Block
from tests.pool.disk.faults import Cut, FaultFiles, Killed, always, once, write_cached
from tests.pool.disk.helpers import (
    NAMESPACE,
    RECORD_BYTES,
    STRIDE_BYTES,
    abandon,
    block,
    data_of,
    key_of,
    open_log,
    read,
    segment_paths,
)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def reopened(folder: Path, log: DiskLog) -> DiskLog:
    abandon(log)
    return open_log(folder)


def found(log: DiskLog) -> set[int]:
    return {int.from_bytes(info.key, "big") for info in log.recovered()}


CUTS = [0, 1, 511, 512, 4095, 4096, 4097, 8191, 8192, 8193, 12_288, 12_289, 16_383, 16_384, 20_479]


@pytest.mark.parametrize("cut", CUTS)
def test_a_process_killed_inside_a_write(tmp_path: Path, cut: int) -> None:
    """Three records of 8192 bytes, of which so many bytes arrive: whole records may count, halves may not."""
    files = FaultFiles()
    log = open_log(tmp_path, files=files)
    log.write([block(1), block(2)])
    log.delete([key_of(2)])
    log.flush()
    files.rule = once("write", files.calls["write"], Cut(cut, Killed()))
    with pytest.raises(Killed):
        log.write([block(3), block(4), block(5)])
    log = reopened(tmp_path, log)
    assert found(log) == {1, *range(3, 3 + cut // STRIDE_BYTES)}
    assert read(log, 1) == data_of(1)
    assert all(read(log, n) == data_of(n) for n in found(log))
    log.check()
    size = sum(path.stat().st_size for path in segment_paths(tmp_path))
    log = reopened(tmp_path, log)
    assert log.stats().failures == {}, "the torn tail is met once"
    assert sum(path.stat().st_size for path in segment_paths(tmp_path)) == size
    log.close()


@pytest.mark.parametrize("cut", [0, 1, 4096, 8192, 10_000])
def test_a_write_that_is_cut_off_and_fails(tmp_path: Path, cut: int) -> None:
    files = FaultFiles()
    log = open_log(tmp_path, files=files)
    log.write([block(1)])
    files.rule = once("write", files.calls["write"], Cut(cut, os_error(errno.EIO)))
    assert log.write([block(2), block(3)]) == ("io", "io")
    assert read(log, 2) == "missing" and read(log, 1) == data_of(1)
    log.check()
    assert log.write([block(2, 1), block(4)]) == ("ok", "ok")
    log.check()
    log = reopened(tmp_path, log)
    assert found(log) == {1, 2, 4} and read(log, 2) == data_of(2, 1) and read(log, 4) == data_of(4)
    log.close()


@pytest.mark.parametrize("short", [1, 4000, 5000])
def test_short_writes_are_continued(tmp_path: Path, short: int) -> None:
    class Short(FaultFiles):
        def write(self, fd, buffers, offset):  # type: ignore[no-untyped-def]
            whole = b"".join(bytes(buffer) for buffer in buffers)
            return write_cached(fd, whole[:short] if len(whole) < 30_000 else whole[:9000], offset)

    with open_log(tmp_path, files=Short()) as log:
        assert log.write([block(n) for n in range(4)]) == ("ok",) * 4
        assert all(read(log, n) == data_of(n) for n in range(4))
        log.check()


def test_nothing_is_acknowledged_when_a_sync_fails_whichever(tmp_path: Path) -> None:
    """Every sync of a run fails once; what was acknowledged is there after a crash, the log goes on."""
    count = 0
    while True:
        folder = tmp_path / str(count)
        files = FaultFiles()
        log = open_log(folder, files=files)
        already = files.calls["sync"]
        files.rule = once("sync", already + count, os_error(errno.EIO))
        acknowledged: dict[int, int] = {}
        for version in range(8):
            batch = [version * 2 + n for n in range(4)]
            for number, outcome in zip(batch, log.write([block(n, version) for n in batch]), strict=True):
                if outcome == "ok":
                    acknowledged[number] = version
                else:
                    assert outcome == "io"
            log.check()
        failed = sum(log.stats().failures.values())
        log = reopened(folder, log)
        for number, version in acknowledged.items():
            assert read(log, number) == data_of(number, version)
        assert found(log) == set(acknowledged)
        log.close()
        if not failed:
            break
        count += 1
    assert count >= 8


def test_a_segment_whose_sync_failed_is_not_written_again(tmp_path: Path) -> None:
    files = FaultFiles()
    with open_log(tmp_path, files=files) as log:
        log.write([block(1)])
        first = segment_paths(tmp_path)[0]
        size = first.stat().st_size
        files.rule = once("sync", files.calls["sync"], os_error(errno.EIO))
        assert log.write([block(2)]) == ("io",)
        assert first.stat().st_size == size
        files.rule = lambda name, count: None
        assert log.write([block(2)]) == ("ok",)
        assert first.stat().st_size == size and len(segment_paths(tmp_path)) == 2
    assert first.stat().st_size == size, "not even a footer"


def test_a_failed_commit_that_cannot_be_cut_off_does_not_come_back(tmp_path: Path) -> None:
    files = FaultFiles()
    log = open_log(tmp_path, files=files)
    log.write([block(1)])
    syncs = files.calls["sync"]
    files.rule = lambda name, count: (
        os_error(errno.EIO) if name == "truncate" or (name == "sync" and count == syncs) else None
    )
    assert log.write([block(2)]) == ("io",)
    files.rule = lambda name, count: None
    log.check()
    log.write([block(3)])
    log = reopened(tmp_path, log)
    assert found(log) == {1, 3}
    log.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_space(tmp_path: Path, number: int) -> None:
    files = FaultFiles()
    with open_log(tmp_path, files=files) as log:
        log.write([block(1)])
        files.rule = always("write", os_error(number))
        for _ in range(5):
            assert log.write([block(2), block(3)]) == ("full", "full")
        log.delete([key_of(1)])
        assert log.flush() == "full" and log.stats().num_owed_tombstones == 1
        files.rule = lambda name, count: None
        assert log.write([block(2)]) == ("ok",) and read(log, 2) == data_of(2)
        assert log.stats().num_owed_tombstones == 0
        log.check()
        assert len(segment_paths(tmp_path)) <= 2
        assert log.stats().failures == {"delete:full": 1, "write:full": 10}


@pytest.mark.parametrize("name", ["create", "open", "sync_folder"])
def test_a_segment_that_cannot_be_begun(tmp_path: Path, name: str) -> None:
    files = FaultFiles()
    with open_log(tmp_path, files=files) as log:
        files.rule = always(name, os_error(errno.EIO))
        assert log.write([block(1)]) == ("io",) and segment_paths(tmp_path) == []
        files.rule = lambda name, count: None
        assert log.write([block(1)]) == ("ok",)
        log.check()


@pytest.mark.parametrize("what", ["folder", "namespace", "segments"])
def test_a_folder_that_vanishes_is_made_again(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "kv"
    with open_log(folder) as log:
        log.write([block(1)])
        remove(folder, what)
        assert read(log, 1) == data_of(1), "its descriptor is still open"
        assert log.write([block(2), block(3)]) == ("gone", "gone")
        assert read(log, 1) == "missing" and log.stats().num_records == 0 and log.stats().physical_bytes == 0
        assert log.write([block(2)]) == ("ok",)
        log.check()
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "its 1 blocks are lost" in caplog.text
    with open_log(folder) as log:
        assert read(log, 2) == data_of(2) and len(log.recovered()) == 1


def remove(folder: Path, what: str) -> None:
    if what == "segments":
        for path in segment_paths(folder):
            path.unlink()
    else:
        shutil.rmtree(folder if what == "folder" else folder / NAMESPACE.hex())


def test_a_folder_that_cannot_be_made_again_is_tried_with_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that was unmounted: nothing is put on the one beneath it."""
    folder = tmp_path / "kv"
    with open_log(folder) as log:
        shutil.rmtree(folder)
        with monkeypatch.context() as patch:
            patch.setattr("samovar.pool.disk.log.device_of", lambda folder: -1)
            assert [log.write([block(n)]) for n in range(3)] == [("gone",), ("io",), ("io",)]
            assert log.delete([key_of(1)]) is None and log.flush() == "ok" and not folder.exists()
        assert log.write([block(1)]) == ("ok",)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "another file system" in caplog.text


def test_what_lies_in_a_folder_made_again_makes_room_for_what_is_written(tmp_path: Path) -> None:
    folder, other = tmp_path / "kv", tmp_path / "other"
    with open_log(other) as log:
        most = log.max_records
        assert set(log.write([block(n) for n in range(most)])) == {"ok"}
    with open_log(folder) as log:
        log.write([block(most)])
        shutil.rmtree(folder)
        other.rename(folder)
        assert log.write([block(0)]) == ("gone",)
        assert read(log, 1) == data_of(1)
        again = [block(n) for n in range(most + 1, 2 * most + 1)]
        for at in range(0, most, 8):
            assert set(log.write(again[at : at + 8])) == {"ok"}
        assert read(log, most - 1) == "missing" and len(log.recovered()) == most
        log.check()


def test_a_full_disk_is_said_once_and_so_is_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files = FaultFiles()
    with open_log(tmp_path, files=files) as log:
        now = [0.0]
        log._health = Health(str(tmp_path), lambda: now[0])
        files.rule = always("write", os_error(errno.ENOSPC))
        assert [log.write([block(n)]) for n in range(3)] == [("full",)] * 3
        files.rule = lambda name, count: None
        for now[0] in (1.0, 12.0, 13.0):
            assert log.write([block(1)]) == ("ok",)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "No space left on device" in caplog.text and "again, after 12 s" in caplog.text


@pytest.mark.parametrize("name", ["punch", "state", "uncache", "truncate", "remove", "sync_folder", "next_data"])
def test_other_calls_may_fail_throughout(tmp_path: Path, name: str) -> None:
    files = FaultFiles()
    log = open_log(tmp_path, files=files)
    log.write([block(n) for n in range(10)])
    files.rule = lambda called, count: os_error(errno.EIO) if called == name and count % 2 else None
    acknowledged = set(range(10))
    for first in range(10, 60, 10):
        batch = list(range(first, first + 10))
        acknowledged |= {n for n, o in zip(batch, log.write([block(n) for n in batch]), strict=True) if o == "ok"}
        log.delete([key_of(n) for n in range(first - 10, first - 5)])
        acknowledged -= set(range(first - 10, first - 5))
        log.compact(1 << 20)
    assert all(read(log, n) == (data_of(n) if n in acknowledged else "missing") for n in range(60))
    files.rule = lambda called, count: None
    assert log.flush() == "ok"
    log = reopened(tmp_path, log)
    assert found(log) == acknowledged
    log.close()


def test_a_read_error_is_a_miss_of_that_record_alone(tmp_path: Path) -> None:
    files = FaultFiles()
    log = open_log(tmp_path, files=files)
    log.write([block(n) for n in range(6)])
    reads = files.calls["read"]
    # The run fails, then the second of the single reads.
    files.rule = lambda name, count: os_error(errno.EIO) if name == "read" and count - reads in (0, 2) else None
    buffers = [bytearray(RECORD_BYTES + 4096) for _ in range(6)]
    views = [memoryview(b)[(-_address(b)) % 4096 :][:RECORD_BYTES] for b in buffers]
    outcomes = log.read_many_into([key_of(n) for n in range(6)], views)
    assert outcomes == ("ok", "io", "ok", "ok", "ok", "ok")
    assert [bytes(v) for n, v in enumerate(views) if n != 1] == [data_of(n) for n in range(6) if n != 1]
    assert read(log, 1) == "missing" and log.stats().failures == {"read:io": 1}
    log.check()
    log.flush()
    log = reopened(tmp_path, log)
    assert 1 not in found(log), "a record that was given up stays away"
    log.close()


def _address(buffer: bytearray) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def flip(path: Path, at: int, bit: int = 3) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_costs_at_most_the_record_it_is_in(tmp_path: Path, sealed: bool, seed: int) -> None:
    """Anywhere in a file: superblock, header, payload, index, end. While the log is closed."""
    rng = random.Random(seed)
    log = open_log(tmp_path)
    log.write([block(n) for n in range(5)])
    if sealed:
        log.close()
    else:
        abandon(log)
    path = segment_paths(tmp_path)[0]
    original = path.read_bytes()
    places = [0, 9, 4095, *(4096 + n * 2048 + rng.randrange(2048) for n in range((len(original) - 4096) // 2048))]
    for at in places:
        path.write_bytes(original)
        flip(path, at, rng.randrange(8))
        log = open_log(tmp_path)
        lost = [n for n in range(5) if read(log, n) != data_of(n)]
        assert len(lost) <= 1, f"byte {at} cost {lost}"
        if lost:
            assert lost[0] == (at - 4096) // STRIDE_BYTES
            assert read(log, lost[0]) == "missing"
        abandon(log)
        for extra in segment_paths(tmp_path)[1:]:
            extra.unlink()


def test_a_bit_that_flips_while_the_log_is_open_is_a_miss(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(n) for n in range(5)])
        flip(segment_paths(tmp_path)[0], 4096 + 2 * STRIDE_BYTES + 4096 + 77)
        assert [read(log, n) for n in range(5)] == [*map(data_of, range(2)), "checksum", *map(data_of, range(3, 5))]
        assert read(log, 2) == "missing" and log.stats().failures == {"read:checksum": 1}
        assert log.write([block(2)]) == ("ok",) and read(log, 2) == data_of(2)


@pytest.mark.parametrize("running", [True, False])
def test_a_file_that_was_cut_keeps_what_is_before_the_cut(tmp_path: Path, running: bool) -> None:
    for size in (0, 100, 4096, 4096 + STRIDE_BYTES, 4096 + 2 * STRIDE_BYTES - 1, 4096 + 3 * STRIDE_BYTES + 5000):
        folder = tmp_path / str(size)
        log = open_log(folder)
        log.write([block(n) for n in range(5)])
        if not running:
            log.close()
        os.truncate(segment_paths(folder)[0], size)
        if not running:
            log = open_log(folder)
        whole = max(0, size - 4096) // STRIDE_BYTES
        for n in range(5):
            assert read(log, n) == data_of(n) if n < whole else read(log, n) in ("io", "missing")
        log.write([block(9)])
        assert read(log, 9) == data_of(9)
        log = reopened(folder, log)
        assert found(log) == {*range(whole), 9} and read(log, 9) == data_of(9)
        log.close()


def test_a_missing_segment_costs_its_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.write([block(n) for n in range(21)])
    log.close()
    assert len(segment_paths(tmp_path)) == 3
    segment_paths(tmp_path)[1].unlink()
    with open_log(tmp_path) as log:
        assert found(log) == {*range(7), *range(14, 21)}
        assert all(read(log, n) == data_of(n) for n in found(log))


def test_a_payload_that_looks_like_a_log_is_not_taken_for_one(tmp_path: Path) -> None:
    """A record whose payload is a copy of another record's header and payload, with its own header destroyed."""
    log = open_log(tmp_path, record_bytes=2 * STRIDE_BYTES, segment_bytes=None, capacity_bytes=16 << 20)
    log.write([block(1), block(2)])
    path = segment_paths(tmp_path)[0]
    stolen = path.read_bytes()[4096 : 4096 + 2 * STRIDE_BYTES]
    log.delete([key_of(1), key_of(2)])
    log.write([Block(key_of(3), b"", "", stolen)])
    log.write([block(4)])
    abandon(log)
    text = path.read_bytes()
    at = text.index(stolen) - 4096
    flip(path, at + 30)
    with open_log(tmp_path, record_bytes=2 * STRIDE_BYTES, segment_bytes=None, capacity_bytes=16 << 20) as log:
        assert found(log) == {4}


def test_a_segment_the_disk_cannot_read_at_all_is_given_up(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.write([block(n) for n in range(10)])
    log.close()
    files = FaultFiles()
    opens = iter(range(100))
    # The first open is the probe's.
    files.rule = lambda name, count: os_error(errno.EIO) if name == "open" and next(opens) == 1 else None
    with open_log(tmp_path, files=files) as log:
        assert found(log) == {7, 8, 9} and log.stats().failures["recover:io"] == 1
    assert len(segment_paths(tmp_path)) == 1
