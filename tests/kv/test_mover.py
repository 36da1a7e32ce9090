"""The mover without faults: bytes go where the plan says, and every transfer is reported once."""

from __future__ import annotations

from collections.abc import Iterator
import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
import pytest

from samovar.core.plan import StepPlan
from samovar.kv.lane import Lane
from tests.kv.mover_parts import MemoryDisk, Rig, key, load, move, store


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def rig(disk: MemoryDisk) -> Iterator[Rig]:
    made = Rig(disk=disk)
    yield made
    made.mover.check()
    made.mover.close()


def test_store_and_load_into_other_blocks(rig: Rig) -> None:
    rig.keep(1, [10, 11, 12], [5, 3, 9])
    done = rig.run(load(2, [10, 11, 12], [20, 22, 21], [5, 3, 9]))
    assert (done.failed, done.reason) == ((), "") and done.seconds > 0
    assert rig.holds(20, 10) and rig.holds(22, 11) and rig.holds(21, 12)
    assert not any(rig.bytes_of(0)), "a block nobody named"
    rig.arena.check()


def test_a_slot_may_be_loaded_by_several_at_once(rig: Rig) -> None:
    rig.keep(1, [10], [0])
    rig.start(*(load(2 + n, [10], [n], [0]) for n in range(20)))
    assert not any(done.failed for done in rig.wait(*range(2, 22)))
    assert all(rig.holds(n, 10) for n in range(20))


def test_to_disk_and_back(rig: Rig, disk: MemoryDisk) -> None:
    rig.keep(1, [10, 11, 12], [0, 1, 2])
    assert not rig.run(move("write", -1, [10, 11, 12], [0, 1, 2])).failed
    assert disk.records == [(key(10), b"", "main"), (key(11), key(10), "main"), (key(12), key(11), "main")]
    assert disk.calls == [("write", 3)], "one commit"
    for slot in range(3):
        rig.arena.open(slot)[:] = 0
    assert not rig.run(move("read", -2, [12, 10], [30, 31], generation=7)).failed
    assert not rig.run(load(2, [10, 12], [40, 41], [31, 30], generation=7)).failed
    assert rig.holds(40, 10) and rig.holds(41, 12)
    assert not any(rig.bytes_of(0)), "a read moves nothing to the device"


def test_a_load_from_disk_promotes(rig: Rig, disk: MemoryDisk) -> None:
    """Two blocks lie in slots, two on disk: all arrive, and the latter two then lie in slots as well as on disk."""
    rig.keep(1, [10, 11, 12, 13], [0, 1, 2, 3])
    assert not rig.run(move("write", -1, [12, 13], [2, 3])).failed
    rig.arena.open(2), rig.arena.open(3)
    assert not rig.run(load(2, [10, 11, 12, 13], [20, 21, 22, 23], [0, 1, 12, 13], from_disk=2)).failed
    assert all(rig.holds(20 + n, 10 + n) for n in range(4))
    assert disk.calls == [("write", 2), ("read", 2)] and set(disk.blocks) == {key(12), key(13)}
    assert not rig.run(load(3, [12, 13], [30, 31], [12, 13])).failed
    assert rig.holds(30, 12) and rig.holds(31, 13) and disk.calls[2:] == []


def test_what_is_deleted_is_missing(rig: Rig, disk: MemoryDisk) -> None:
    rig.keep(1, [10, 11], [0, 1])
    rig.run(move("write", -1, [10, 11], [0, 1]))
    assert not rig.run(move("delete", -2, [10])).failed
    done = rig.run(move("read", -3, [10, 11], [4, 5]))
    assert (done.failed, done.reason) == ((0,), "missing")
    assert rig.arena.sealed(4) is None and rig.arena.sealed(5) is not None


def test_deleted_and_written_again_in_one_plan(rig: Rig, disk: MemoryDisk) -> None:
    rig.keep(1, [10], [0])
    rig.start(*(move(op, -n, [10], [0] if op == "write" else []) for n, op in enumerate(["write", "delete"] * 20, 1)))
    rig.start(move("write", -99, [10], [0]))
    rig.wait(*(-n for n in range(1, 41)), -99)
    assert set(disk.blocks) == {key(10)} and [op for op, _ in disk.calls] == ["write", "delete"] * 20 + ["write"]


def test_many_more_blocks_than_a_piece() -> None:
    rig = Rig(num_blocks=3000, num_slots=3000, disk=MemoryDisk())
    numbers = list(range(3000))
    rig.keep(1, numbers, list(reversed(numbers)))
    assert not rig.run(move("write", -1, numbers[1000:], [2999 - n for n in numbers[1000:]])).failed
    for slot in range(2000):
        rig.arena.open(slot)[:] = 0
    done = rig.run(load(2, numbers, numbers, list(reversed(numbers)), from_disk=2000))
    assert not done.failed
    assert all(rig.holds(n, n) for n in numbers)
    rig.arena.check()
    rig.mover.close()


def test_transfers_of_nothing(rig: Rig) -> None:
    rig.start(load(1, [], [], []), store(2, [], [], []), move("write", -1, []), move("delete", -2, []))
    assert [done.failed for done in rig.wait(1, 2, -1, -2)] == [()] * 4
    rig.start()
    assert rig.mover.done() == []


def test_everything_is_reported_once(rig: Rig) -> None:
    rig.keep(1, [10, 11], [0, 1])
    rig.start(*(load(2 + n, [10, 11], [2, 3], [0, 1]) for n in range(0, 100)))
    rig.wait(*range(2, 102))
    rig.collect()
    assert len(rig.ended) == 101 and rig.mover.stats().open_transfers == 0


def test_without_a_disk() -> None:
    rig = Rig()
    rig.keep(1, [10], [0])
    done = rig.run(load(2, [10, 11], [0, 1], [0, 5], from_disk=1))
    assert (done.failed, done.reason) == ((1,), "missing") and rig.holds(0, 10)
    assert rig.run(move("write", -1, [10], [0])).reason == "full"
    assert not rig.run(move("delete", -2, [10])).failed
    rig.mover.close()


def test_what_is_counted(rig: Rig) -> None:
    size = rig.layout.block_bytes
    rig.keep(1, [10, 11, 12], [0, 1, 2])
    rig.run(move("write", -1, [10, 11], [0, 1]))
    rig.run(move("read", -2, [10], [7]))
    rig.run(load(2, [10, 12, 11], [0, 1, 2], [0, 2, 9], from_disk=1))
    rig.run(move("delete", -3, [10, 99]))
    rig.run(load(3, [77, 10], [0, 1], [0, 0]))
    stats = rig.mover.stats()
    flows = (stats.device_to_host, stats.host_to_device, stats.disk_to_host, stats.host_to_disk)
    assert [(flow.blocks, flow.bytes) for flow in flows] == [(n, n * size) for n in (3, 3, 2, 2)]
    assert all(flow.seconds > 0 for flow in flows)
    assert stats.deleted_blocks == 2 and stats.failed_blocks == {"generation": 2}
    assert (stats.late_transfers, stats.errors, stats.open_transfers) == (0, 0, 0)
    assert 10 * rig.arena.stride_bytes <= stats.host_touched_bytes <= rig.arena.memory.size


def test_pages_come_ahead_of_what_is_stored() -> None:
    rig = Rig(num_slots=4096)
    assert rig.mover.stats().host_touched_bytes == 0, "nothing was stored: address space only"
    rig.keep(1, [10], [0])
    for _ in range(200):
        if rig.mover.stats().host_touched_bytes == rig.arena.memory.size:
            break
        threading.Event().wait(0.02)
    touched = rig.mover.stats().host_touched_bytes
    assert touched >= rig.arena.stride_bytes
    rig.mover.close()


class Twin(RuleBasedStateMachine):
    """One transfer after the other, against dicts of what device, slots and disk hold: numbers of contents."""

    def __init__(self) -> None:
        super().__init__()
        self.disk_store = MemoryDisk()
        self.rig = Rig(6, 4, self.disk_store)
        self.device: dict[int, int] = {}
        self.slots: dict[int, tuple[int, int]] = {}
        self.disk: set[int] = set()
        self.id = self.generation = 0

    def teardown(self) -> None:
        self.rig.mover.close()

    def expect(self, transfer, failed: list[int]) -> None:
        done = self.rig.run(transfer)
        assert list(done.failed) == failed and bool(done.reason) == bool(failed)

    def fresh(self) -> int:
        self.id += 1
        return self.id

    @rule(block=st.integers(0, 5), number=st.integers(1, 5))
    def compute(self, block: int, number: int) -> None:
        self.rig.fill(block, number)
        self.device[block] = number

    @rule(block=st.integers(0, 5), slot=st.integers(0, 3))
    def store(self, block: int, slot: int) -> None:
        if block in self.device:
            self.generation += 1
            self.expect(store(self.fresh(), [self.device[block]], [block], [slot], self.generation), [])
            self.slots[slot] = (self.device[block], self.generation)

    @rule(slots=st.lists(st.integers(0, 3), min_size=1, max_size=3), number=st.integers(1, 5), own=st.booleans())
    def load(self, slots: list[int], number: int, own: bool) -> None:
        """`own`: by what the slots hold; else by one name and the latest generation for all."""
        wanted = [self.slots.get(s, (number, 0)) if own else (number, self.generation) for s in slots]
        good = [self.slots.get(s) == w for s, w in zip(slots, wanted, strict=True)]
        first = good.index(False) if False in good else len(good)
        transfer = load(self.fresh(), [n for n, _ in wanted], range(len(slots)), slots)
        generations = tuple(generation for _, generation in wanted)
        self.expect(replace(transfer, generations=generations), list(range(first, len(good))))
        self.device |= {block: wanted[block][0] for block in range(first)}

    @rule(slot=st.integers(0, 3), op=st.sampled_from(["write", "read", "load"]), number=st.integers(1, 5))
    def disk_move(self, slot: int, op: str, number: int) -> None:
        if op == "write":
            name, generation = self.slots.get(slot, (number, 0))
            self.expect(move(op, -self.fresh(), [name], [slot], generation), [] if slot in self.slots else [0])
            self.disk |= {name} if slot in self.slots else set()
            return
        self.generation += 1
        failed = [] if number in self.disk else [0]
        if op == "read":
            self.expect(move(op, -self.fresh(), [number], [slot], self.generation), failed)
        else:
            self.expect(load(self.fresh(), [number], [5], [slot], self.generation, from_disk=1), failed)
            self.device |= {} if failed else {5: number}
        if not failed:
            self.slots[slot] = (number, self.generation)

    @rule(number=st.integers(1, 5))
    def delete(self, number: int) -> None:
        self.expect(move("delete", -self.fresh(), [number]), [])
        self.disk.discard(number)

    @invariant()
    def same(self) -> None:
        self.rig.arena.check()
        self.rig.mover.check()
        assert all(self.rig.holds(block, number) for block, number in self.device.items())
        seals = {slot: self.rig.arena.sealed(slot) for slot in range(4)}
        assert {s: (x.key, x.generation) for s, x in seals.items() if x} == {
            s: (key(number), generation) for s, (number, generation) in self.slots.items()
        }
        assert set(self.disk_store.blocks) == {key(number) for number in self.disk}


TestTwin = Twin.TestCase
TestTwin.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_a_lane_takes_the_first_queue_that_has_work() -> None:
    order: list[int] = []
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    lane = Lane("test", 1, 2, lambda error: None)
    lane.put(0, iter([lambda bounce: (begun.set(), go.wait(5))]))
    assert begun.wait(5)
    lane.put(1, iter([lambda bounce: order.append(3), lambda bounce: ended.set()]))
    lane.put(0, iter([lambda bounce: order.append(1), lambda bounce: order.append(2)]))
    go.set()
    assert ended.wait(5) and order == [1, 2, 3]
    lane.stop()
    assert lane.join(5)


def test_a_lanes_thread_outlives_what_its_work_raises() -> None:
    errors: list[Exception] = []
    ended = threading.Event()

    def fail(bounce: object) -> None:
        raise KeyError("made")

    lane = Lane("test", 1, 1, errors.append)
    lane.put(0, iter([fail, fail, lambda bounce: ended.set()]))
    assert ended.wait(5) and len(errors) == 2
    lane.stop()
    assert lane.join(5)


def test_an_empty_plan_starts_nothing(rig: Rig) -> None:
    rig.mover.start(StepPlan(0))
    assert rig.mover.stats().open_transfers == 0
