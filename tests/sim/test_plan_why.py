"""Which parts of a turn a change makes shorter or longer."""

from __future__ import annotations

from dataclasses import replace

from samovar.sim.outcome import TurnTiming
from samovar.sim.plan_trial import Trial
from samovar.sim.plan_why import aimed_at, turn_change
from samovar.sim.report_limits import Explained
from tests.sim.plan_made import trial


def made(total_s: float, **causes: float) -> Trial:
    """`causes` are shares."""
    named = {name.replace("_", " "): share for name, share in causes.items()}
    return replace(trial(1.0), explained=Explained(10, TurnTiming(decode_s=total_s), named, 0.5, 0.2, 0.0, 0.1))


OLD = made(40.0, KV_capacity=0.7, bandwidth=0.25, collectives=0.05)


def test_the_largest_changes_are_named_in_seconds() -> None:
    new = made(12.0, bandwidth=0.5, collectives=0.4, launch=0.1)
    told = "40.0 → 12.0: KV capacity 28.0 → 0.00, bandwidth 10.0 → 6.00, collectives 2.00 → 4.80"
    assert turn_change(new, OLD) == told
    assert turn_change(OLD, new).startswith("12.0 → 40.0: KV capacity 0.00 → 28.0, ")


def test_nothing_changes() -> None:
    assert turn_change(OLD, OLD) == "40.0 → 40.0: no part changes by 2% of a turn"


def test_without_turns_there_is_nothing_to_compare() -> None:
    assert turn_change(made(0.0), OLD) == "no request ended well with it"
    assert turn_change(OLD, made(0.0)) == "no request ended well before it"


def test_what_there_was_to_win() -> None:
    assert aimed_at(("KV capacity", "launch"), OLD) == "KV capacity 70%, launch 0%"
    assert aimed_at((), OLD) == ""
