"""Opening again: how fast, and how little is needed for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
import time

import pytest

from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.record import Block
from tests.pool.disk.faults import FaultFiles
from tests.pool.disk.helpers import abandon, block, data_of, key_of, open_log, read, segment_paths

RECORDS = 100_000
RECOVERY_S = 3.0


def open_many(folder: Path) -> DiskLog:
    return DiskLog.open(str(folder), b"many", 512, 2 << 30, fsync=False, background=False)


@pytest.mark.slow
def test_a_hundred_thousand_records_are_found_in_three_seconds(tmp_path: Path) -> None:
    log = open_many(tmp_path)
    for first in range(0, RECORDS, 500):
        batch = [
            Block(key_of(n), key_of(n - 1) if n else b"", f"stream {n % 50}", data_of(n, 0, 512))
            for n in range(first, first + 500)
        ]
        assert set(log.write(batch)) == {"ok"}
    log.close()
    begin = time.monotonic()
    log = open_many(tmp_path)
    with_footers = time.monotonic() - begin
    assert [info.key for info in log.recovered()] == [key_of(n) for n in range(RECORDS)]
    abandon(log)
    for path in (tmp_path / b"many".hex()).glob("*.seg"):
        os.truncate(path, path.stat().st_size - 4096)
    begin = time.process_time()
    log = open_many(tmp_path)
    without = time.process_time() - begin
    assert len(log.recovered()) == RECORDS
    log.close()
    print(f"{RECORDS} records: {with_footers:.2f} s with footers, {without:.2f} s of CPU by scanning")
    assert with_footers <= RECOVERY_S and without <= RECOVERY_S


def test_without_footers_everything_is_found_and_footers_are_made(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(n) for n in range(40)])
        log.delete([key_of(n) for n in range(0, 40, 3)])
        log.write([block(1, 5)])
    for path in segment_paths(tmp_path):
        os.truncate(path, path.stat().st_size - 4096)
    expected = {n: data_of(n, 5 if n == 1 else 0) for n in range(40) if n % 3}
    for scanned in (len(segment_paths(tmp_path)), 0):
        log = open_log(tmp_path)
        assert log.stats().failures.get("recover:scanned", 0) == scanned
        assert {int.from_bytes(info.key, "big") for info in log.recovered()} == set(expected)
        assert all(read(log, n) == data for n, data in expected.items())
        log.check()
        abandon(log)


def test_a_replaced_record_does_not_come_back_when_the_newer_one_is_damaged(tmp_path: Path) -> None:
    log = open_log(tmp_path, punching=False)
    log.write([block(n) for n in range(7)])
    log.write([block(3, 1)])
    log.write([block(50)])  # With the tombstone of what was replaced.
    abandon(log)
    path = segment_paths(tmp_path)[1]
    text = bytearray(path.read_bytes())
    text[4096 + 100] ^= 1
    path.write_bytes(text)
    with open_log(tmp_path, punching=False) as log:
        assert read(log, 3) == "missing" and read(log, 50) == data_of(50)


def test_an_interrupted_compaction_leaves_twins_and_no_harm(tmp_path: Path) -> None:
    """The copy is durable, the victim still there: one of them counts, and the other goes."""
    log = open_log(tmp_path, punching=False)
    log.write([block(n) for n in range(10)])
    victim = segment_paths(tmp_path)[0]
    text = victim.read_bytes()
    log.delete([key_of(n) for n in range(0, 7, 2)])
    log.compact(1 << 20)
    assert not victim.exists()
    abandon(log)
    victim.write_bytes(text)
    log = open_log(tmp_path, punching=False)
    assert {int.from_bytes(info.key, "big") for info in log.recovered()} == {1, 3, 5, 7, 8, 9}
    assert all(read(log, n) == data_of(n) for n in (1, 3, 5, 7, 8, 9))
    log.check()
    log.delete([key_of(1)])
    log.flush()
    log = _again(tmp_path, log)
    assert read(log, 1) == "missing"
    log.close()


def test_an_empty_segment_is_cleared_away(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(1)])
    folder = segment_paths(tmp_path)[0].parent
    (folder / f"{9 << 32:016x}.seg").write_bytes(b"")
    (folder / f"{9 << 32 | 1:016x}.seg").write_bytes(bytes(5000))
    with open_log(tmp_path) as log:
        assert len(segment_paths(tmp_path)) == 1 and read(log, 1) == data_of(1)
        log.write([block(2)])
        assert int(segment_paths(tmp_path)[-1].stem, 16) >> 32 == 10, "numbers are never given twice"


def test_places_of_the_dead_are_given_back_after_a_crash_between_tombstone_and_punch(tmp_path: Path) -> None:
    log = open_log(tmp_path, punching=False)
    log.write([block(n) for n in range(7)])
    log.delete([key_of(n) for n in range(1, 7)])
    log.flush()
    abandon(log)
    before = segment_paths(tmp_path)[0].stat().st_blocks
    with open_log(tmp_path) as log:
        assert before - segment_paths(tmp_path)[0].stat().st_blocks >= 5 * 16
        assert read(log, 0) == data_of(0)
        log.check()


def _again(folder: Path, log: DiskLog) -> DiskLog:
    abandon(log)
    return open_log(folder, punching=False)


def unreadable(*places: int) -> type[FaultFiles]:
    """Reads that touch one of these blocks of a file fail, as on a disk with bad sectors."""

    class Files(FaultFiles):
        def __init__(self) -> None:
            super().__init__()
            self.segments: set[int] = set()

        def open(self, path: str, **how) -> int:
            fd = super().open(path, **how)
            if path.endswith(".seg"):
                self.segments.add(fd)
            return fd

        def read(self, fd: int, buffers, offset: int) -> int:
            end = offset + sum(memoryview(buffer).nbytes for buffer in buffers)
            if fd in self.segments and any(offset < place + 4096 and place < end for place in places):
                raise OSError(errno.EIO, "bad sector")
            return super().read(fd, buffers, offset)

    return Files


@pytest.mark.parametrize("place", [0, 4096, 3 * 4096])
def test_a_block_that_cannot_be_read_costs_one_record_at_most(tmp_path: Path, place: int) -> None:
    """The superblock, a header and a payload; without footers, so that the file is scanned."""
    with open_log(tmp_path, punching=False) as log:
        log.write([block(n) for n in range(6)])
    (path,) = segment_paths(tmp_path)
    os.truncate(path, path.stat().st_size - 4096)
    with open_log(tmp_path, punching=False, files=unreadable(place)()) as log:
        found = {int.from_bytes(info.key, "big") for info in log.recovered()}
        assert len(found) >= 5 if place else found == set(range(6))
        assert path.exists(), "the segment is still there"
    with open_log(tmp_path, punching=False) as log:
        assert all(read(log, n) == data_of(n) for n in found)
        log.check()
