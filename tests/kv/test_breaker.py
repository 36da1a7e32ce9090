"""A disk that does not answer: after a few loads that were late nothing waits for it any more, until it answers."""

from __future__ import annotations

from collections.abc import Sequence
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.core.plan import Load
from samovar.kv.breaker import LATE_IN_A_ROW, LONGEST_PAUSE_S, PAUSE_S, Breaker
from samovar.kv.mover import MoverSettings
from samovar.kv.tiers import TieredConnector
from samovar.policy.lru import LRU
from tests.kv.mover_parts import MemoryDisk, Rig, key, move
from tests.kv.tier_driver import A, B, Driver, driver, lose_host, on_disk


def with_only_the_disk(blocks: int = 4, host: int = 100) -> Driver:
    d = driver(host=host)
    on_disk(d, A[:blocks])
    lose_host(d, blocks)
    return d


def run_late(d: Driver, times: int) -> None:
    for _ in range(times):
        assert d.load(A[:2]).from_disk == 2
        d.done(d.last, (0, 1), "late")


def disk_report(d: Driver) -> tuple[bool, int]:
    report = next(report for report in d.tiers.report() if report.tier == "disk")
    return report.suspended, report.suspensions


def test_after_some_late_loads_in_a_row_the_disk_is_a_miss_at_once() -> None:
    d = with_only_the_disk()
    run_late(d, LATE_IN_A_ROW - 1)
    assert d.tiers.lookup(A, d.now).num_blocks == 4 and disk_report(d) == (False, 0)
    run_late(d, 1)
    assert disk_report(d) == (True, 1)
    assert d.tiers.lookup(A, d.now).num_blocks == 0 and d.tiers.restore_s(A[0]) is None
    assert d.load(A[:2]).slots == () and d.has(A)["disk"] == 4
    d.tiers.wanted(A[:4], d.now)
    assert d.moves() == [] and d.tiers.wake_at == PAUSE_S


def test_what_the_host_has_is_offered_all_the_same() -> None:
    d = with_only_the_disk()
    run_late(d, LATE_IN_A_ROW)
    d.store(A[:2])
    assert [(share.tier, share.num_blocks) for share in d.tiers.lookup(A, d.now).shares] == [("host", 2)]
    assert d.load(A[:4]).from_disk == 0


def test_an_answer_in_between_begins_the_count_again() -> None:
    d = with_only_the_disk()
    for ending in (((), ""), ((1,), "late"), ((0, 1), "io")):
        run_late(d, LATE_IN_A_ROW - 1)
        d.load(A[:2])
        d.done(d.last, *ending)
        lose_host(d, 2)
        assert not disk_report(d)[0]
        d = with_only_the_disk()


def test_a_load_that_failed_before_it_came_to_the_disk_says_nothing() -> None:
    d = with_only_the_disk()
    d.store(A[:1])
    for _ in range(LATE_IN_A_ROW + 1):
        assert d.load(A[:2]).from_disk == 1
        d.done(d.last, (0, 1), "late")
    assert not disk_report(d)[0]


@pytest.mark.parametrize("reason", ["", "io", "missing"])
def test_the_first_probe_that_is_answered_ends_it(reason: str) -> None:
    d = with_only_the_disk()
    run_late(d, LATE_IN_A_ROW)
    d.now = PAUSE_S
    (probe,) = d.moves()
    assert (probe.op, len(probe.keys)) == ("read", 1) and d.moves() == [] and d.tiers.wake_at is None
    d.done(probe.transfer_id, (0,) if reason else (), reason)
    assert disk_report(d) == (False, 1)
    assert d.tiers.lookup(A, d.now).num_blocks == (0 if reason else 4)


def test_late_probes_come_at_ever_longer_intervals() -> None:
    d = with_only_the_disk()
    run_late(d, LATE_IN_A_ROW)
    pauses = []
    for _ in range(7):
        assert d.tiers.wake_at is not None
        pauses.append(d.tiers.wake_at - d.now)
        d.now = d.tiers.wake_at
        (probe,) = d.moves()
        d.done(probe.transfer_id, (0,), "late")
        d.moves()
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0, 160.0] and pauses[-1] == LONGEST_PAUSE_S
    assert disk_report(d) == (True, 1)


def test_loads_that_began_before_it_neither_lengthen_nor_prolong_it() -> None:
    d = with_only_the_disk()
    waiting = []
    for _ in range(LATE_IN_A_ROW + 3):
        d.load(A[:2])
        waiting.append(d.last)
    for transfer_id in waiting[:-1]:
        d.done(transfer_id, (0, 1), "late")
    assert d.tiers.wake_at == PAUSE_S and disk_report(d) == (True, 1)
    d.done(waiting[-1])
    assert disk_report(d) == (False, 1) and d.tiers.lookup(A, d.now).num_blocks == 4


def test_without_a_slot_the_probe_comes_later_and_without_a_record_there_is_none() -> None:
    d = with_only_the_disk(host=2)
    run_late(d, LATE_IN_A_ROW)
    d.store(B[:2], report=False)
    d.now = PAUSE_S
    assert d.moves("read") == [] and d.tiers.wake_at == PAUSE_S + 2 * PAUSE_S
    d.done(d.last)
    d.tiers.distrust(A[:1], d.now)
    d.settle()
    assert not d.has(A)["disk"]
    d.now = 3 * PAUSE_S
    d.settle()
    assert disk_report(d) == (False, 1)


@given(st.lists(st.tuples(st.sampled_from(["late", "answered", "probe", "time"]), st.floats(0, 100)), max_size=40))
def test_any_order_of_reports(events: list[tuple[str, float]]) -> None:
    breaker, now, late_in_a_row = Breaker(), 0.0, 0
    for what, seconds in events:
        now += seconds
        if what == "late":
            breaker.late(now)
            late_in_a_row += 1
        elif what == "answered":
            breaker.answered()
            late_in_a_row = 0
        elif what == "probe" and breaker.probe_at is not None and breaker.probe_at <= now:
            breaker.probing()
            breaker.late(now, probe=True)
            late_in_a_row += 1
        breaker.check()
        assert breaker.suspended == (late_in_a_row >= LATE_IN_A_ROW)
        assert not breaker.suspended or breaker.probe_at is not None


def test_a_disk_that_hangs_costs_a_few_deadlines_and_no_more() -> None:
    """The real mover: every thread that reads hangs; once the disk answers, so does the tier."""
    go = threading.Event()

    def hang(op: str, names: Sequence[bytes]) -> None:
        if op == "read":
            assert go.wait(20)

    deadline_s = 0.2
    disk = MemoryDisk(hang)
    rig = Rig(disk=disk, settings=MoverSettings(read_threads=2, deadline_s=deadline_s))
    tiers = TieredConnector(8, 8, LRU(), rig.layout.block_bytes)
    names = [key(n) for n in range(4)]
    tiers.restore([(name, names[n - 1] if n else b"", "s") for n, name in enumerate(names)])
    disk.blocks |= {key(n): rig.content(n).tobytes() for n in range(4)}

    def turn(number: int) -> str:
        """How a request's look-up and load end."""
        if not tiers.lookup(names, time.monotonic()).num_blocks:
            return "miss"
        place = tiers.load(number, names, time.monotonic())
        done = rig.run(Load(number, 0, tuple(names), (0, 1, 2, 3), place.slots, place.generations, place.from_disk))
        tiers.transferred(done, time.monotonic())
        tiers.check()
        return done.reason

    began = time.monotonic()
    assert [turn(1 + n) for n in range(20)] == ["late"] * LATE_IN_A_ROW + ["miss"] * (20 - LATE_IN_A_ROW)
    assert time.monotonic() - began < (LATE_IN_A_ROW + 2) * deadline_s
    go.set()
    later = time.monotonic() + PAUSE_S
    (probe,) = tiers.moves(later)
    tiers.transferred(rig.run(probe), later)
    assert turn(50) == "" and all(rig.holds(n, n) for n in range(4))
    assert not rig.run(move("delete", -100, [0])).failed
    rig.mover.check()
    rig.mover.close()
