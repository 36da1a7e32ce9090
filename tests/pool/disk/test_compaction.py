"""Dead bytes come back, at a bearable price, and the files never outgrow the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
import os
from pathlib import Path
import random
import time
from typing import TYPE_CHECKING

import pytest

from samovar.pool.disk.log import DiskLog
from tests.pool.disk.faults import FaultFiles
from tests.pool.disk.helpers import (
    CAPACITY_BYTES,
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

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LARGE_BYTES = 8 << 20


class Measured(FaultFiles):
    """Adds up what all segments occupy, after every call that may change it."""

    def __init__(self) -> None:
        super().__init__()
        self.most_bytes = 0
        self._paths: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self._total = 0

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> int:
        fd = super().open(path, create=create, direct=direct)
        self._paths[fd] = path
        return fd

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        count = super().write(fd, buffers, offset)
        self._look(fd)
        return count

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._look(fd)

    def punch(self, fd: int, offset: int, num_bytes: int) -> None:
        super().punch(fd, offset, num_bytes)
        self._look(fd)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._total -= self._sizes.pop(path, 0)

    def _look(self, fd: int) -> None:
        path, size = self._paths[fd], os.fstat(fd).st_blocks * 512
        self._total += size - self._sizes.get(path, 0)
        self._sizes[path] = size
        self.most_bytes = max(self.most_bytes, self._total)


def churn(log: DiskLog, rng: random.Random, rounds: int, live: int, batch: int = 4) -> dict[int, int]:
    """Keeps `live` records and replaces random ones by new ones."""
    model: dict[int, int] = {}
    number = 0
    while number < rounds:
        victims = rng.sample(sorted(model), max(0, len(model) + batch - live))
        log.delete([key_of(n) for n in victims])
        for n in victims:
            del model[n]
        fresh = range(number, number + batch)
        assert log.write([block(n, n) for n in fresh]) == ("ok",) * batch
        model.update({n: n for n in fresh})
        number += batch
    return model


@pytest.mark.parametrize("punching", [True, False])
@pytest.mark.parametrize("background", [True, False])
def test_random_deletions_at_four_fifths_of_the_room(tmp_path: Path, punching: bool, background: bool) -> None:
    """Uniformly random victims are the worst there is; without holes their price is that of any log at this fill."""
    files = Measured()
    log = open_log(
        tmp_path,
        files=files,
        punching=punching,
        background=background,
        capacity_bytes=LARGE_BYTES,
        segment_bytes=LARGE_BYTES // 64,
        fsync=False,
    )
    model = churn(log, random.Random(1), 6000, log.max_records * 8 // 10, batch=10)
    assert all(read(log, n) == data_of(n, version) for n, version in model.items())
    stats = log.stats()
    log.close()
    assert not stats.failures
    assert files.most_bytes <= LARGE_BYTES * 1.1
    copied = stats.compacted_bytes / (stats.written_records * STRIDE_BYTES)
    assert copied < (0.2 if punching else 2.0), f"copied {copied:.2f} bytes per byte written"
    assert physical_bytes(tmp_path) <= LARGE_BYTES * 1.1


def test_a_queue_costs_no_copies(tmp_path: Path) -> None:
    """Oldest first, as sessions come and go: segments die as a whole."""
    with open_log(tmp_path, punching=False, fsync=False) as log:
        live = log.max_records * 8 // 10
        for n in range(1500):
            log.delete([key_of(n - live)] if n >= live else [])
            assert log.write([block(n)]) == ("ok",)
        assert log.stats().compacted_bytes <= 0.1 * 1500 * STRIDE_BYTES
        assert log.stats().num_records == live


@pytest.mark.parametrize("punching", [True, False])
def test_filled_to_the_last_record_for_ever(tmp_path: Path, punching: bool) -> None:
    files = Measured()
    with open_log(tmp_path, files=files, punching=punching, fsync=False) as log:
        churn(log, random.Random(2), 1200, log.max_records, batch=3)
        assert log.stats().num_records == log.max_records
        log.check()
    assert files.most_bytes <= CAPACITY_BYTES * 1.1


def test_when_nothing_comes_back_writes_are_refused_then_deletions(tmp_path: Path) -> None:
    """Compaction does not work at all: the files stop growing all the same."""
    files = Measured()
    with open_log(tmp_path, files=files, punching=False, fsync=False) as log:
        log._compactor.make_room = lambda num_bytes: None  # type: ignore[method-assign]
        version = 0
        while log.write([block(version % 20, version)]) == ("ok",):
            version += 1
            assert version < 1000
        assert log.stats().num_records == 20
        outcomes = []
        while len(outcomes) < 100 and "full" not in outcomes:
            number = len(outcomes) % 20
            log.delete([key_of(number)])
            outcomes.append(log.flush())
        assert outcomes.count("ok") >= 3 and outcomes[-1] == "full"
        assert log.write([block(50)]) == ("full",)
        log._index.check()
        firm = log._settings.firm_bytes
    assert files.most_bytes <= firm, "nor did the footer go beyond"


def test_a_footer_that_would_be_too_much_is_left_out(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(n) for n in range(3)])
        full = replace(log._settings, capacity_bytes=log._index.physical_bytes)
        path = segment_paths(tmp_path)[0]
        before = path.stat().st_size
        log._writer._settings = full
        log._writer.seal()
        assert path.stat().st_size == before
    with open_log(tmp_path) as log:
        assert log.stats().failures == {"recover:scanned": 1}
        assert all(read(log, n) == data_of(n) for n in range(3))


def test_a_deleted_record_gives_its_place_back_without_a_copy(tmp_path: Path) -> None:
    with open_log(tmp_path, capacity_bytes=8 << 20, segment_bytes=256 << 10) as log:
        log.write([block(n) for n in range(100)])
        before = physical_bytes(tmp_path)
        log.delete([key_of(n) for n in range(0, 100, 2)])
        log.flush()
        assert before - physical_bytes(tmp_path) >= 45 * STRIDE_BYTES
        assert log.stats().compacted_bytes == 0
        assert all(read(log, n) == data_of(n) for n in range(1, 100, 2))
        log.check()


def test_asked_for_it_packs_what_is_left(tmp_path: Path) -> None:
    with open_log(tmp_path, punching=False) as log:
        assert set(log.write([block(n) for n in range(130)])) == {"ok"}
        log.delete([key_of(n) for n in range(130) if n % 3])
        before = log.stats()
        assert log.compact(10 * STRIDE_BYTES) >= 10 * STRIDE_BYTES
        assert log.compact(1 << 30) > 0
        after = log.stats()
        assert after.num_segments < before.num_segments / 2
        assert after.physical_bytes < before.physical_bytes / 2
        assert log.compact(1 << 30) == 0, "nothing is left to gain"
        assert all(read(log, n) == data_of(n) for n in range(0, 130, 3))
        log.check()
        abandon(log)
    with open_log(tmp_path, punching=False) as log:
        assert {int.from_bytes(info.key, "big") for info in log.recovered()} == set(range(0, 130, 3))
        assert [info.key for info in log.recovered()] == [key_of(n) for n in range(0, 130, 3)], "still in order"


def test_copies_keep_the_order_and_tombstones_survive_their_segment(tmp_path: Path) -> None:
    """The tombstone of a record in an old segment is in a newer one, which is compacted first."""
    log = open_log(tmp_path, punching=False, segment_bytes=48 << 10)
    log.write([block(n) for n in range(5)])
    log.delete([key_of(0)])
    log.write([block(n) for n in range(10, 14)])
    log.write([block(n) for n in range(20, 25)])
    log.delete([key_of(n) for n in range(10, 14)])
    log.flush()
    log.check()
    log.compact(1 << 20)
    log.check()
    abandon(log)
    log = open_log(tmp_path, punching=False, segment_bytes=48 << 10)
    assert {int.from_bytes(info.key, "big") for info in log.recovered()} == {1, 2, 3, 4, *range(20, 25)}
    log.check()
    log.close()


def test_the_background_thread_does_it_unasked(tmp_path: Path) -> None:
    with open_log(tmp_path, background=True) as log:
        log.write([block(n) for n in range(100)])
        log.delete([key_of(n) for n in range(100)])
        deadline = time.monotonic() + 10
        while (log.stats().num_owed_tombstones or log.stats().num_segments > 1) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert log.stats().num_owed_tombstones == 0 and log.stats().num_segments <= 1
        log.check()
        assert len(segment_paths(tmp_path)) <= 1


def test_damage_is_not_copied_along(tmp_path: Path) -> None:
    with open_log(tmp_path, punching=False) as log:
        log.write([block(n) for n in range(14)])
        with segment_paths(tmp_path)[0].open("r+b") as file:
            file.seek(4096 + STRIDE_BYTES + 4096)
            file.write(b"damage")
        log.delete([key_of(0), key_of(3)])
        log.compact(1 << 20)
        assert read(log, 1) == "missing" and read(log, 2) == data_of(2)
        assert log.stats().failures == {"compact:checksum": 1}
        log.check()


def test_many_restarts_do_not_pile_up_files(tmp_path: Path) -> None:
    for n in range(30):
        with open_log(tmp_path, capacity_bytes=8 << 20, segment_bytes=256 << 10, fsync=False) as log:
            assert log.write([block(n)]) == ("ok",)
            log.compact(1 << 20)
    assert len(segment_paths(tmp_path)) <= 10
    with open_log(tmp_path, capacity_bytes=8 << 20, segment_bytes=256 << 10) as log:
        assert all(read(log, n) == data_of(n) for n in range(30))


def test_deletions_are_durable_although_the_files_leave_no_room_for_a_tombstone(tmp_path: Path) -> None:
    """Nor for a segment to begin with: compaction makes it."""
    small, ends = 768 << 10, 24 << 10

    def opened() -> DiskLog:
        return open_log(tmp_path, capacity_bytes=small, segment_bytes=ends, punching=False, fsync=False)

    log = opened()
    log.write([block(n) for n in range(49, 91)])
    for _ in range(2):
        log.close()
        log = opened()
    log.write([block(n % 121, 1) for n in range(20, 76)])
    kept = {int.from_bytes(info.key, "big") for info in log.recovered()}
    assert log._index.physical_bytes + 8192 > log._settings.firm_bytes, "there is room: the test shows nothing"
    log.delete([key_of(n) for n in range(52)])
    log.close()
    with opened() as log:
        assert {int.from_bytes(info.key, "big") for info in log.recovered()} == kept - set(range(52))
