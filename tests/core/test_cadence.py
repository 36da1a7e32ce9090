"""Prefill in every Nth step: which steps, in closed form, alone and behind a group's gate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.core.cadence import PrefillCadence, group_gate
from samovar.core.plan import Gate

INTERVALS = st.integers(1, 9)


def run(cadence: PrefillCadence, steps: int, *, drained: bool = True, gates: int = 0, decode: bool = True) -> list[int]:
    """Steps that had prefill when there always is some to do; `gates` is the interval of a group, 0 when alone."""
    had = []
    for step in range(steps):
        deferred = cadence.defers(group_gate(step, gates) if gates else None, decode)
        cadence.planned(deferred=deferred, had_prefill=not deferred, drained=drained)
        if not deferred:
            had.append(step)
    return had


@given(interval=INTERVALS, steps=st.integers(0, 60))
def test_alone_it_is_every_nth_step_from_the_first_on(interval: int, steps: int) -> None:
    assert run(PrefillCadence(interval), steps) == list(range(0, steps, interval))


@given(interval=INTERVALS, steps=st.integers(0, 60), own=INTERVALS)
def test_in_a_group_the_counter_decides(interval: int, steps: int, own: int) -> None:
    assert run(PrefillCadence(own), steps, gates=interval) == list(range(0, steps, interval))


@given(counter=st.integers(0, 10_000), interval=INTERVALS)
def test_the_gate_opens_when_a_wave_begins_and_every_nth_step_after(counter: int, interval: int) -> None:
    gate = group_gate(counter, interval)
    assert gate.step_counter == counter
    assert gate.prefill_allowed is (counter % interval == 0)
    assert group_gate(0, interval).prefill_allowed


@given(interval=INTERVALS, steps=st.integers(0, 40), gates=st.booleans())
def test_without_decodes_nothing_is_deferred(interval: int, steps: int, gates: bool) -> None:
    assert run(PrefillCadence(interval), steps, gates=interval * gates, decode=False) == list(range(steps))


@given(interval=INTERVALS, steps=st.integers(0, 40), gates=st.booleans())
def test_a_queue_that_does_not_drain_switches_it_off(interval: int, steps: int, gates: bool) -> None:
    """From the first releasing step on, which is step 0."""
    assert run(PrefillCadence(interval), steps, gates=interval * gates, drained=False) == list(range(steps))


@given(interval=st.integers(2, 9), full=st.integers(1, 10), steps=st.integers(1, 40))
def test_the_first_step_that_drains_the_queue_switches_it_on_again(interval: int, full: int, steps: int) -> None:
    cadence = PrefillCadence(interval)
    assert run(cadence, full, drained=False) == list(range(full))
    assert run(cadence, 1) == [0], "it drained, with prefill"
    assert run(cadence, steps) == list(range(interval - 1, steps, interval))


@given(interval=INTERVALS, idle=st.integers(0, 30), steps=st.integers(1, 30))
def test_prefill_that_comes_after_a_pause_waits_for_nobody(interval: int, idle: int, steps: int) -> None:
    """Steps count since the last prefill: after N-1 of them without any, the next prompt starts at once."""
    cadence = PrefillCadence(interval)
    assert run(cadence, 1) == [0]
    for _ in range(idle):
        deferred = cadence.defers(None, True)
        cadence.planned(deferred=deferred, had_prefill=False, drained=True)
    first = max(0, interval - 1 - idle)
    assert run(cadence, steps) == list(range(first, steps, interval))


@pytest.mark.parametrize("drained", [True, False])
def test_a_deferred_step_says_nothing_about_the_queue(drained: bool) -> None:
    cadence = PrefillCadence(4)
    cadence.planned(deferred=False, had_prefill=True, drained=True)
    assert cadence.defers(None, True)
    cadence.planned(deferred=True, had_prefill=False, drained=drained)
    assert cadence.defers(None, True), "a queue that nobody was let out of is no sign of saturation"
    cadence.planned(deferred=False, had_prefill=True, drained=False)
    cadence.planned(deferred=True, had_prefill=False, drained=True)
    assert not cadence.defers(None, True), "nor of the end of one"


def test_a_closed_gate_holds_only_while_something_decodes() -> None:
    cadence = PrefillCadence(4)
    closed = Gate(3, False)
    assert cadence.defers(closed, True) and not cadence.defers(closed, False)


@given(
    interval=INTERVALS, before=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6), steps=st.integers(1, 20),
    gates=st.integers(0, 9),
)  # fmt: skip
def test_decodes_taken_together_count_as_one_by_one(
    interval: int, before: list[tuple[bool, bool]], steps: int, gates: int
) -> None:
    cadences = [PrefillCadence(interval) for _ in range(2)]
    for cadence in cadences:
        for had_prefill, drained in before:
            cadence.planned(deferred=False, had_prefill=had_prefill, drained=drained)
    run_one_by_one, together = cadences
    for step in range(steps):
        deferred = run_one_by_one.defers(group_gate(step, gates) if gates else None, True)
        run_one_by_one.planned(deferred=deferred, had_prefill=False, drained=True)
    together.decoded(steps)
    for gate in (None, Gate(1, False), Gate(0, True)):
        assert run_one_by_one.defers(gate, True) is together.defers(gate, True)
    assert run(run_one_by_one, 20) == run(together, 20)


@pytest.mark.parametrize("guarded", [True, False])
def test_without_its_guard_a_queue_that_does_not_drain_is_throttled_all_the_same(guarded: bool) -> None:
    assert run(PrefillCadence(4, guarded=guarded), 9, drained=False) == (list(range(9)) if guarded else [0, 4, 8])


@given(
    interval=INTERVALS, before=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), closed=st.integers(0, 9)
)
def test_how_many_steps_in_a_row_leave_prefill_out(interval: int, before: list[tuple[bool, bool]], closed: int) -> None:
    for alone in (True, False):
        cadence = PrefillCadence(interval)
        for had_prefill, drained in before:
            cadence.planned(deferred=False, had_prefill=had_prefill, drained=drained)
        told, found = cadence.deferring(None if alone else closed), 0
        while cadence.defers(None if alone else Gate(1, found >= closed), any_decode=True):
            cadence.planned(deferred=True, had_prefill=False, drained=True)
            found += 1
        assert told == found
