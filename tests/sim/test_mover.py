"""When transfers end, by hand; one block has 10 bytes on a device, and 20 on disk (two devices)."""

from __future__ import annotations

import pytest

from samovar.core.plan import Load, Move, StepPlan, Store, TransferDone
from samovar.kv.mover import MoverSettings
from samovar.sim.links_events import LinkEvents
from samovar.sim.mover import VirtualMover, Ways
from samovar.spec.link import Link

HOST = Link("host", "test", 100.0, 50.0, 0.0)
SSD = Link("ssd", "test", 40.0, 20.0, 0.0)
KEYS = tuple(bytes([i]) for i in range(40))
PARENTS = (b"", *KEYS)


class Rank:
    def __init__(self, events: LinkEvents | None = None, host: Link = HOST, ssd: Link = SSD, **settings: float) -> None:
        self.events = events or LinkEvents()
        self.disk = self.events.add(ssd, "ssd", "read", "write")
        self.host = self.events.add(host, "host")
        ways = Ways(self.host, 10.0, self.disk, 20.0)
        self.mover = VirtualMover(self.events, ways, settings=MoverSettings(**settings))  # type: ignore[arg-type]

    def start(self, now: float, *, loads: tuple[Load, ...] = (), stores: tuple[Store, ...] = (),
              moves: tuple[Move, ...] = ()) -> None:  # fmt: skip
        self.mover.start(StepPlan(0, loads=loads, stores=stores, moves=moves), now)

    def run(self) -> list[tuple[float, TransferDone]]:
        found = []
        while (at := self.mover.next_end()) is not None:
            found += [(at, done) for done in self.mover.ended(at)]
            self.mover.check()
            self.events.check()
        return found


def store(number: int, count: int, first: int = 0) -> Store:
    every = tuple(range(first, first + count))
    return Store(number, 0, KEYS[first : first + count], every, every, every)


def load(number: int, count: int, first: int = 0, from_disk: int = 0) -> Load:
    every = tuple(range(first, first + count))
    return Load(number, 0, KEYS[first : first + count], every, every, every, from_disk)


def write(number: int, count: int, first: int = 0) -> Move:
    every = tuple(range(first, first + count))
    end = first + count
    return Move(number, "write", 0, KEYS[first:end], every, every, PARENTS[first:end], "s")


def test_a_store_and_a_load_take_bytes_over_bandwidth() -> None:
    rank = Rank()
    rank.start(1.0, stores=(store(1, 10),))
    assert rank.run() == [(pytest.approx(3.0), TransferDone(1, (), "", pytest.approx(2.0)))]
    rank.start(5.0, loads=(load(2, 10),))
    assert rank.run() == [(pytest.approx(6.0), TransferDone(2, (), "", pytest.approx(1.0)))]


def test_loads_of_several_pieces_go_one_after_the_other_and_small_ones_share() -> None:
    size = float(1 << 20)
    link = Link("host", "test", size, size, 0.0)
    events = LinkEvents()
    host = events.add(link, "host")
    mover = VirtualMover(events, Ways(host, size))  # a block is a piece
    every = tuple(range(4))
    mover.start(StepPlan(0, stores=(Store(1, 0, KEYS[:4], every, every, every),)), 0.0)
    assert mover.ended(4.0) == [TransferDone(1, (), "", 4.0)]
    large = Load(2, 0, KEYS[:4], every, every, every)
    small = [Load(3 + n, 0, KEYS[n : n + 1], (n,), (n,), (n,)) for n in range(3)]
    mover.start(StepPlan(1, loads=(large, *small)), 4.0)
    ends = []
    while (at := mover.next_end()) is not None:
        ends += [(at, done.transfer_id, done.seconds) for done in mover.ended(at)]
    # Both threads on the large one until 8; then two small ones at half the speed each until 10, the third until 11.
    assert ends == [(8.0, 2, 4.0), (10.0, 3, 2.0), (10.0, 4, 2.0), (11.0, 5, 1.0)]


def test_a_load_goes_before_stores_that_have_begun() -> None:
    size = float(1 << 20)
    events = LinkEvents()
    host = events.add(Link("host", "test", size, size, 0.25), "host")
    mover = VirtualMover(events, Ways(host, size))
    every, more = tuple(range(4)), tuple(range(4, 8))
    mover.start(StepPlan(0, stores=(Store(1, 0, KEYS[:4], every, every, every),)), 0.0)
    mover.ended(5.0)
    mover.start(StepPlan(1, stores=(Store(2, 0, KEYS[4:8], more, more, more),)), 5.0)
    mover.start(StepPlan(2, loads=(Load(3, 0, KEYS[:4], every, every, every),)), 6.25)
    # The store has had 1 s of 4, waits for the load (4.25 s), and goes on without another latency.
    assert mover.ended(100.0) == [TransferDone(3, (), "", 4.25), TransferDone(2, (), "", 4.25)]


def test_what_lies_on_disk_is_read_first_and_copied_behind_it() -> None:
    rank = Rank()
    rank.start(0.0, stores=(store(1, 20),))
    assert [at for at, _ in rank.run()] == [pytest.approx(4.0)]
    rank.start(4.0, moves=(write(-1, 20),))
    assert rank.run() == [(pytest.approx(24.0), TransferDone(-1, (), "", pytest.approx(20.0)))]
    # 10 blocks from memory in 1 s, beside it 10 from disk: 200 bytes at 40/s, then 100 at 100/s.
    rank.start(30.0, loads=(load(2, 20, from_disk=10),))
    assert rank.run() == [(pytest.approx(36.0), TransferDone(2, (), "", pytest.approx(6.0)))]
    rank.start(40.0, moves=(Move(-2, "read", 0, KEYS[:4], (30, 31, 32, 33), (9, 9, 9, 9)),))
    assert rank.run() == [(pytest.approx(42.0), TransferDone(-2, (), "", pytest.approx(2.0)))]
    rank.start(50.0, loads=(Load(3, 0, KEYS[:4], (0, 1, 2, 3), (30, 31, 32, 33), (9, 9, 9, 9)),))
    assert [(at, done.failed) for at, done in rank.run()] == [(pytest.approx(50.4), ())]


def test_a_long_load_from_disk_is_read_and_copied_at_the_same_time() -> None:
    size = float(8 << 20)  # a piece
    events = LinkEvents()
    ssd = events.add(Link("ssd", "test", size, size, 0.0), "ssd")
    host = events.add(Link("host", "test", 4 * size, size, 0.0), "host")
    mover = VirtualMover(events, Ways(host, size, ssd, size))
    every = tuple(range(16))
    mover.start(StepPlan(0, stores=(Store(1, 0, KEYS[:16], every, every, every),)), 0.0)
    mover.ended(16.0)
    mover.start(StepPlan(1, moves=(Move(-1, "write", 0, KEYS[:16], every, every, PARENTS[:16]),)), 16.0)
    mover.ended(32.0)
    mover.start(StepPlan(2, loads=(Load(2, 0, KEYS[:16], every, every, every, 16),)), 32.0)
    # Read in 16 s; of four batches of four only the last one's copy (1 s) comes after.
    assert mover.next_end() == 36.0
    assert [done.seconds for done in mover.ended(100.0)] == [17.0]
    assert host.inward.moved_bytes(100.0) == ssd.inward.moved_bytes(100.0) == 16 * size


def test_a_slow_copy_holds_up_reading() -> None:
    size = float(8 << 20)
    events = LinkEvents()
    ssd = events.add(Link("ssd", "test", 4 * size, 4 * size, 0.0), "ssd")
    host = events.add(Link("host", "test", size, 16 * size, 0.0), "host")
    mover = VirtualMover(events, Ways(host, size, ssd, size))
    every = tuple(range(16))
    mover.start(StepPlan(0, stores=(Store(1, 0, KEYS[:16], every, every, every),)), 0.0)
    mover.ended(1.0)
    mover.start(StepPlan(1, moves=(Move(-1, "write", 0, KEYS[:16], every, every, PARENTS[:16]),)), 1.0)
    mover.ended(5.0)
    mover.start(StepPlan(2, loads=(Load(2, 0, KEYS[:16], every, every, every, 16),)), 5.0)
    assert [done.seconds for done in mover.ended(100.0)] == [17.0]


def test_ranks_of_a_machine_share_its_disk_and_not_their_host_links() -> None:
    events = LinkEvents()
    ssd = events.add(SSD, "ssd", "read", "write")
    movers = [VirtualMover(events, Ways(events.add(HOST, f"host {n}"), 10.0, ssd, 20.0)) for n in range(2)]
    for mover in movers:
        mover.start(StepPlan(0, stores=(store(1, 10),)), 0.0)
    assert [mover.ended(2.0) for mover in movers] == [[TransferDone(1, (), "", 2.0)]] * 2
    for mover in movers:
        mover.start(StepPlan(1, moves=(write(-1, 10),)), 2.0)
    assert [mover.next_end() for mover in movers] == [pytest.approx(22.0)] * 2
    assert [[done.transfer_id for done in mover.ended(22.0)] for mover in movers] == [[-1], [-1]]
    events.check()


def test_a_slot_of_another_generation_ends_a_load_there() -> None:
    rank = Rank()
    rank.start(0.0, stores=(store(1, 6),))
    rank.run()
    other = Load(2, 0, KEYS[:6], tuple(range(6)), tuple(range(6)), (0, 1, 2, 7, 4, 5))
    rank.start(2.0, loads=(other,))
    assert rank.run() == [(pytest.approx(2.3), TransferDone(2, (3, 4, 5), "generation", pytest.approx(0.3)))]
    rank.start(3.0, moves=(Move(-1, "write", 0, KEYS[:3], (0, 1, 2), (0, 9, 2), PARENTS[:3]),))
    assert rank.run() == [(pytest.approx(5.0), TransferDone(-1, (1,), "generation", pytest.approx(2.0)))]


def test_a_slot_that_is_being_written_holds_nothing() -> None:
    rank = Rank(memory_threads=4)
    rank.start(0.0, stores=(store(1, 5),))
    rank.run()
    again = Store(2, 0, KEYS[10:15], tuple(range(5)), tuple(range(5)), (20,) * 5)
    rank.start(2.0, stores=(again,))
    rank.start(2.5, loads=(load(3, 5),))
    assert {done.transfer_id: done.failed for _, done in rank.run()} == {2: (), 3: (0, 1, 2, 3, 4)}


def test_what_is_not_on_disk_is_missing_and_in_a_load_all_behind_it() -> None:
    rank = Rank()
    rank.start(0.0, stores=(store(1, 6),))
    rank.run()
    rank.start(2.0, moves=(write(-1, 6),))
    rank.run()
    rank.start(10.0, moves=(Move(-2, "delete", 0, KEYS[2:3]),))
    assert rank.run() == [(10.0, TransferDone(-2, (), "", 0.0))]
    rank.start(11.0, moves=(Move(-3, "read", 0, KEYS[:4], (10, 11, 12, 13), (1, 1, 1, 1)),))
    assert [(done.failed, done.reason) for _, done in rank.run()] == [((2,), "missing")]
    rank.start(20.0, loads=(load(2, 6, from_disk=5),))
    assert [(done.failed, done.reason) for _, done in rank.run()] == [((2, 3, 4, 5), "missing")]


def test_a_late_transfer_is_given_up_with_what_has_arrived() -> None:
    rank = Rank(deadline_s=1.0, slowest_bytes_per_s=200.0)  # a block may take 0.05 s more
    rank.start(0.0, stores=(store(1, 10),))
    # 1.5 s at 50 bytes/s: seven of ten blocks, and a half.
    assert rank.run() == [(1.5, TransferDone(1, (7, 8, 9), "late", 1.5))]
    assert rank.host.outward.moved_bytes(1.5) == pytest.approx(75.0)
    rank.start(2.0, moves=(write(-1, 7),))
    assert rank.run() == [(3.35, TransferDone(-1, tuple(range(7)), "late", pytest.approx(1.35)))]
    rank.start(4.0, moves=(Move(-2, "read", 0, KEYS[:1], (20,), (1,)),))
    assert [done.reason for _, done in rank.run()] == ["missing"]


def test_one_that_waits_for_its_turn_may_be_late_as_well() -> None:
    rank = Rank(deadline_s=1.0, slowest_bytes_per_s=1e9, memory_threads=1)
    rank.start(0.0, stores=(store(1, 8), store(2, 2, first=8)))
    done = rank.run()
    assert [(at, d.transfer_id, len(d.failed), d.seconds) for at, d in done] == [
        (pytest.approx(1.0, rel=1e-6), 2, 2, 0.0),
        (pytest.approx(1.0, rel=1e-6), 1, 3, pytest.approx(1.0)),
    ]


def test_a_transfer_of_nothing_ends_at_once() -> None:
    rank = Rank()
    rank.start(1.0, stores=(Store(1, 0, (), ()),))
    assert rank.run() == [(1.0, TransferDone(1))]
