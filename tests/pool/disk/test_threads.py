"""Many threads on one log: readers against writers, deletions and compaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
import random
import threading

import pytest

from samovar.pool.disk.memory import aligned_buffer
from tests.pool.disk.faults import FaultFiles
from tests.pool.disk.helpers import CAPACITY_BYTES, RECORD_BYTES, block, data_of, key_of, open_log, physical_bytes, read

KEYS = 100
READS = 2500


def together(*bodies: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("punching", [True, False])
def test_a_reader_gets_the_bytes_of_some_version_or_a_miss_never_damage(tmp_path: Path, punching: bool) -> None:
    """Versions of a key only grow, so a reader must never see one older than it saw, or than was acknowledged."""
    acknowledged = [0] * KEYS
    stop = threading.Event()
    log = open_log(tmp_path, punching=punching, background=True, fsync=False)

    def write(seed: int) -> None:
        rng = random.Random(seed)
        version = 0
        while not stop.is_set():
            version += 1
            batch = [n for n in rng.sample(range(KEYS), 6) if n % 2 == seed]
            outcomes = log.write([block(n, version) for n in batch])
            for n, outcome in zip(batch, outcomes, strict=True):
                assert outcome == "ok"
                acknowledged[n] = version
            if rng.random() < 0.5:
                log.delete([key_of(n) for n in rng.sample(range(KEYS), 3) if n % 2 == seed])

    def read_all(seed: int) -> None:
        rng = random.Random(seed)
        buffers = [aligned_buffer(RECORD_BYTES) for _ in range(6)]
        try:
            for _ in range(READS // 6):
                batch = rng.sample(range(KEYS), 6)
                before = [acknowledged[n] for n in batch]
                outcomes = log.read_many_into([key_of(n) for n in batch], buffers)
                for n, least, outcome, buffer in zip(batch, before, outcomes, buffers, strict=True):
                    assert outcome in ("ok", "missing")
                    if outcome == "ok":
                        version = int.from_bytes(buffer[8:16], "big")
                        assert bytes(buffer) == data_of(n, version) and version >= least
        finally:
            stop.set()

    together(lambda: write(0), lambda: write(1), lambda: read_all(7), lambda: read_all(8))
    assert log.stats().failures == {}
    log.check()
    log.close()
    assert physical_bytes(tmp_path) <= CAPACITY_BYTES * 1.1


def test_a_segment_that_goes_while_it_is_read_stays_open_for_the_reader(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write([block(n) for n in range(3)])
        log._writer.seal()
        pinned = log._index.pin([key_of(1)])
        assert pinned[0] is not None
        entry, segment = pinned[0]
        log.delete([key_of(n) for n in range(3)])
        log._compactor.remove_empty()
        assert segment.retired and not Path(segment.path).exists()
        assert log.stats().physical_bytes >= segment.allocated_bytes > 0, "its place is not free yet"
        buffer = aligned_buffer(RECORD_BYTES)
        assert log._reader.fetch(entry, segment, buffer) == "ok" and bytes(buffer) == data_of(1)
        log._index.unpin([segment])
        assert log.stats().physical_bytes == 0
        assert read(log, 1) == "missing"


@pytest.mark.parametrize("alone", [True, False])
def test_a_record_that_moves_under_a_read_is_looked_up_again(tmp_path: Path, alone: bool) -> None:
    """Its place is a hole by the time the disk is asked: that is no damage."""
    files = FaultFiles()
    with open_log(tmp_path, files=files) as log:
        log.write([block(n) for n in range(4)])
        batch = [1] if alone else [0, 1, 2, 3]

        def meanwhile(change: Callable[[], object]) -> None:
            begun = files.calls["read"]

            def rule(name: str, count: int) -> None:
                if name == "read" and count == begun:
                    change()
                    log.flush()

            files.rule = rule

        buffers = [aligned_buffer(RECORD_BYTES) for _ in batch]
        meanwhile(lambda: log.write([block(1, 1)]))
        assert log.read_many_into([key_of(n) for n in batch], buffers) == ("ok",) * len(batch)
        assert [bytes(b) for b in buffers] == [data_of(n, 1 if n == 1 else 0) for n in batch]
        meanwhile(lambda: log.delete([key_of(1)]))
        outcomes = log.read_many_into([key_of(n) for n in batch], buffers)
        assert outcomes == tuple("missing" if n == 1 else "ok" for n in batch)
        assert log.stats().failures == {}
        log.check()


def test_closing_in_the_middle(tmp_path: Path) -> None:
    log = open_log(tmp_path, background=True, fsync=False)
    log.write([block(n) for n in range(50)])
    started = threading.Event()

    def read_on() -> None:
        buffer = aligned_buffer(RECORD_BYTES)
        for n in range(2000):
            started.set()
            outcome = log.read_into(key_of(n % 50), buffer)
            assert outcome == "missing" or bytes(buffer) == data_of(n % 50)

    def write_on() -> None:
        while log.write([block(60)]) == ("ok",):
            pass

    def close() -> None:
        started.wait()
        log.close()

    together(read_on, write_on, close)
    with open_log(tmp_path) as log:
        assert all(read(log, n) == data_of(n) for n in range(50))
