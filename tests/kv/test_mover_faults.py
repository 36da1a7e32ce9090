"""The mover when tiers fail: a wrong, missing, raising or hanging block costs itself and what has to come after it, is
reported once with its reason, and nothing else stops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import threading
import time

import numpy as np
import pytest

from samovar.kv import mover as mover_module
from samovar.kv.mover import MoverSettings
from tests.kv.mover_parts import QUICK, MemoryDisk, Rig, key, load, move, store


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(disk=MemoryDisk())
    yield made
    made.mover.check()
    made.mover.close()


@pytest.mark.parametrize("reason", ["generation", "checksum"])
def test_only_what_lies_before_a_bad_slot_is_loaded(rig: Rig, reason: str) -> None:
    rig.keep(1, [10, 11, 12, 13, 14], [0, 1, 2, 3, 4])
    if reason == "checksum":
        rig.arena.memory[rig.arena.offset(2) + 100] ^= 1
    else:
        rig.arena.put(2, key(12), 2, rig.content(12))
    done = rig.run(load(2, [10, 11, 12, 13, 14], [20, 21, 22, 23, 24], [0, 1, 2, 3, 4]))
    assert (done.failed, done.reason) == ((2, 3, 4), reason)
    assert rig.holds(20, 10) and rig.holds(21, 11)
    assert not any(any(rig.bytes_of(block)) for block in (22, 23, 24))
    assert rig.mover.stats().failed_blocks == {reason: 3}


def test_a_bad_record_ends_a_load_and_not_a_read() -> None:
    disk = MemoryDisk()
    rig = Rig(disk=disk)
    rig.keep(1, [10, 11, 12], [0, 1, 2])
    rig.run(move("write", -1, [10, 11, 12], [0, 1, 2]))
    disk.outcome[key(11)] = "checksum"
    done = rig.run(load(2, [10, 11, 12], [20, 21, 22], [30, 31, 32], generation=2, from_disk=3))
    assert (done.failed, done.reason) == ((1, 2), "checksum")
    assert rig.holds(20, 10) and not any(rig.bytes_of(22)) and rig.arena.sealed(32) is None
    done = rig.run(move("read", -2, [10, 11, 12], [40, 41, 42]))
    assert (done.failed, done.reason) == ((1,), "checksum")
    assert rig.arena.sealed(40) and rig.arena.sealed(42) and not rig.arena.sealed(41)
    disk.outcome[key(11)] = "something new"
    assert rig.run(move("read", -3, [11], [43])).reason == "io"
    rig.mover.close()


def test_a_slot_that_changed_is_not_written(rig: Rig) -> None:
    """What stands behind it is written all the same."""
    rig.keep(1, [10, 11, 12], [0, 1, 2])
    rig.arena.memory[rig.arena.offset(1)] ^= 1
    done = rig.run(move("write", -1, [10, 11, 12], [0, 1, 2]))
    assert (done.failed, done.reason) == ((1,), "checksum")
    assert [rig.run(move("read", -n, [8 + n], [20])).failed for n in (2, 3, 4)] == [(), (0,), ()]


def test_a_third_write_that_raises_does_not_stop_the_fourth(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def fail_third(op: str, names: Sequence[bytes]) -> None:
        calls.append(op)
        if len(calls) == 3:
            raise OSError(5, "made")

    rig = Rig(disk=MemoryDisk(fail_third))
    rig.keep(1, [10, 11, 12, 13], [0, 1, 2, 3])
    rig.start(*(move("write", -1 - n, [10 + n], [n]) for n in range(4)))
    assert [done.failed for done in rig.wait(-1, -2, -3, -4)] == [(), (), (0,), ()]
    assert rig.ended[-3].reason == "io" and calls == ["write"] * 4
    stats = rig.mover.stats()
    assert (stats.errors, stats.open_transfers, stats.host_to_disk.blocks) == (1, 0, 3)
    assert len(caplog.records) == 1 and "KV tier failed" in caplog.text
    rig.mover.close()


def test_in_a_batch_only_the_block_that_raises_fails() -> None:
    def poisoned(op: str, names: Sequence[bytes]) -> None:
        if key(12) in names:
            raise RuntimeError("made")

    disk = MemoryDisk(poisoned)
    rig = Rig(disk=disk)
    rig.keep(1, [10, 11, 12, 13], [0, 1, 2, 3])
    assert rig.run(move("write", -1, [10, 11, 12, 13], [0, 1, 2, 3])).failed == (2,)
    assert set(disk.blocks) == {key(10), key(11), key(13)} and rig.mover.stats().errors == 1
    done = rig.run(load(2, [10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33], from_disk=4))
    assert (done.failed, done.reason) == ((2, 3), "io") and rig.holds(21, 11)
    assert rig.run(move("delete", -3, [11, 12, 13])).failed == (1,)
    assert set(disk.blocks) == {key(10)}
    rig.mover.close()


def test_a_block_the_device_does_not_have(rig: Rig) -> None:
    done = rig.run(store(1, [10, 11, 12], [0, 999, 1], [0, 1, 2]))
    assert (done.failed, done.reason) == ((1,), "io")
    assert rig.arena.sealed(0) and rig.arena.sealed(2) and not rig.arena.sealed(1)
    done = rig.run(load(2, [10, 12], [999, 3], [0, 2]))
    assert (done.failed, done.reason) == ((0, 1), "io")


def test_a_disk_that_answers_too_little() -> None:
    class Short(MemoryDisk):
        def read_many_into(self, keys, buffers):
            return super().read_many_into(keys, buffers)[1:]

    rig = Rig(disk=Short())
    done = rig.run(move("read", -1, [10, 11], [0, 1]))
    assert (done.failed, done.reason) == ((0, 1), "io") and rig.mover.stats().errors == 2
    rig.mover.close()


class Hang:
    """Calls of one kind wait until they are let go."""

    def __init__(self, op: str, only: bytes | None = None) -> None:
        self.op, self.only = op, only
        self.inside = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, op: str, names: Sequence[bytes]) -> None:
        if op == self.op and (self.only is None or self.only in names):
            self.inside.release()
            assert self.go.wait(20)


def test_a_read_that_hangs_is_late_and_touches_nothing_when_it_comes_back() -> None:
    hang = Hang("read")
    disk = MemoryDisk(hang)
    rig = Rig(disk=disk, settings=QUICK)
    disk.blocks |= {key(n): rig.content(n).tobytes() for n in (10, 11)}
    began = time.monotonic()
    rig.start(load(1, [10], [0], [0], from_disk=1), move("read", -1, [11], [1]))
    done = rig.wait(1, -1)
    assert 0.4 < time.monotonic() - began < 5
    assert [(one.failed, one.reason) for one in done] == [((0,), "late")] * 2
    assert rig.mover.stats().late_transfers == 2
    # Block and slots belong to others now.
    rig.fill(0, 77)
    rig.arena.put(0, key(77), 9, rig.content(77))
    rig.arena.put(1, key(78), 9, rig.content(78))
    hang.go.set()
    disk.before = lambda op, names: None
    assert not rig.run(load(2, [10], [5], [5], from_disk=1)).failed and rig.holds(5, 10)
    time.sleep(0.1)
    assert rig.holds(0, 77)
    rig.arena.check()
    assert [seal.key for seal in map(rig.arena.sealed, (0, 1)) if seal] == [key(77), key(78)]
    rig.collect()
    assert set(rig.ended) == {1, -1, 2}, "nothing is reported twice"
    rig.mover.close()


def test_the_part_that_arrived_before_a_hang_counts() -> None:
    hang = Hang("read")
    rig = Rig(disk=MemoryDisk(hang), settings=QUICK)
    rig.keep(1, [10, 11], [0, 1])
    done = rig.run(load(2, [10, 11, 12, 13], [20, 21, 22, 23], [0, 1, 2, 3], from_disk=2))
    assert (done.failed, done.reason) == ((2, 3), "late")
    assert rig.holds(20, 10) and rig.holds(21, 11)
    hang.go.set()
    rig.mover.close()


def test_while_every_read_of_the_disk_hangs_the_host_tier_works() -> None:
    hang = Hang("read")
    rig = Rig(disk=MemoryDisk(hang), settings=MoverSettings(deadline_s=20, read_threads=2))
    rig.keep(1, [10], [0])
    rig.start(*(load(2 + n, [50 + n], [50], [50], from_disk=1) for n in range(4)))
    assert hang.inside.acquire(timeout=5) and hang.inside.acquire(timeout=5)
    assert not rig.run(load(9, [10], [1], [0])).failed and rig.holds(1, 10)
    assert not rig.run(move("write", -1, [10], [0])).failed
    hang.go.set()
    rig.wait(2, 3, 4, 5)
    rig.mover.close()


def test_a_write_that_hangs_holds_up_no_load_and_writes_what_was_meant() -> None:
    hang = Hang("write")
    disk = MemoryDisk(hang)
    rig = Rig(disk=disk, settings=QUICK)
    rig.keep(1, [10, 11], [0, 1])
    disk.blocks[key(60)] = rig.content(60).tobytes()
    rig.start(move("write", -1, [10], [0]), move("write", -2, [11], [1]))
    assert hang.inside.acquire(timeout=5)
    assert not rig.run(load(2, [10, 60], [5, 6], [0, 20], from_disk=1)).failed
    assert [done.reason for done in rig.wait(-1, -2)] == ["late", "late"]
    rig.arena.put(0, key(70), 5, rig.content(70))
    hang.go.set()
    assert not rig.run(move("write", -3, [70], [0], generation=5)).failed
    assert disk.blocks[key(10)] == rig.content(10).tobytes() and key(11) not in disk.blocks
    rig.mover.close()


def test_large_transfers_have_longer() -> None:
    hang = Hang("read")
    rig = Rig(disk=MemoryDisk(hang), settings=MoverSettings(deadline_s=0.1, slowest_bytes_per_s=10 * 4096))
    began = time.monotonic()
    rig.start(load(1, list(range(5)), range(5), range(5), from_disk=5), load(2, [9], [9], [9], from_disk=1))
    rig.wait(2)
    assert time.monotonic() - began > 0.15 and 1 not in rig.ended
    rig.wait(1)
    assert time.monotonic() - began > 0.55
    hang.go.set()
    rig.mover.close()


def test_a_callback_that_raises_costs_a_counter() -> None:
    rig = Rig()
    rig.mover._on_done = lambda: 1 // 0
    rig.start(store(1, [10], [0], [0]), store(2, [11], [1], [1]))
    until = time.monotonic() + 5
    while len(rig.ended) < 2 and time.monotonic() < until:
        rig.collect()
    assert set(rig.ended) == {1, 2} and rig.mover.stats().errors == 2
    rig.mover.close()


def test_close_in_the_middle() -> None:
    """Thousands of blocks under way: it ends soon, nothing is reported, and nothing moves afterwards."""
    rig = Rig(num_blocks=4000, num_slots=4000)
    numbers = list(range(4000))
    for block in numbers:
        rig.fill(block, block)
    rig.start(*(store(1 + n, numbers, numbers, numbers, 1 + n) for n in range(3)))
    time.sleep(0.01)
    began = time.monotonic()
    rig.mover.close()
    assert time.monotonic() - began < 2 and rig.mover.done() == []
    before = rig.arena.memory.copy()
    rig.start(store(10, [5], [0], [9], 99), load(11, [5], [0], [9]))
    time.sleep(0.1)
    assert rig.mover.done() == [] and np.array_equal(before, rig.arena.memory)
    assert not any(thread.is_alive() for thread in rig.threads)


def test_close_while_a_read_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover_module, "CLOSE_S", 0.3)
    hang = Hang("read")
    disk = MemoryDisk(hang)
    rig = Rig(disk=disk)
    disk.blocks[key(10)] = rig.content(10).tobytes()
    rig.start(load(1, [10], [0], [0], from_disk=1))
    assert hang.inside.acquire(timeout=5)
    began = time.monotonic()
    rig.mover.close()
    assert time.monotonic() - began < 2
    hang.go.set()
    for thread in rig.threads:
        thread.join(5)
        assert not thread.is_alive()
    assert not any(rig.bytes_of(0)) and rig.arena.sealed(0) is None and rig.mover.done() == []
