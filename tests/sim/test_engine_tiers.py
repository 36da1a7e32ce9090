"""Engines beside each other: one replay, and otherwise nothing in common."""

from __future__ import annotations

from dataclasses import replace

from samovar.kv.settings import tiers_of
from samovar.sim.engine_tiers import build_tiers, links_of
from samovar.sim.outcome import SimRun
from tests.sim.tier_runs import conversations, run, tiers

SCRIPTS = conversations(8, 4)
DISK = tiers_of(offloading_size="400MB", disk_path="/nowhere", disk_size="4000MB")


def timeless(found: SimRun) -> SimRun:
    return replace(found, took_s=0.0)


def test_an_engine_beside_it_changes_nothing_for_a_lane() -> None:
    one = run(SCRIPTS, lanes=1, ranks=2, tiers=tiers())
    both = run(SCRIPTS, lanes=1, ranks=2, engines=2, tiers=tiers())
    assert (both.records, both.timings, both.steps) == (one.records, one.timings, one.steps)
    assert both.num_steps == one.num_steps and both.simulated_s == one.simulated_s
    assert len(both.stats) == 4 and both.stats[:2] == one.stats


def test_each_engine_has_its_lanes_and_tiers() -> None:
    """Eight conversations on two engines of two ranks: of what the tiers hold, each engine finds its own again."""
    found = run(SCRIPTS, ranks=2, engines=2, num_blocks=250, tiers=tiers(DISK))
    assert found.sessions_begun == found.sessions_finished == 8
    assert all(stats.stored_blocks > 0 and stats.step_tokens > 0 for stats in found.stats)
    assert {sample.rank for sample in found.memory} == {0, 1, 2, 3}
    names = [link.name for link in found.links]
    assert len(set(names)) == len(names)
    assert all(name.startswith(("engine 0: ", "engine 1: ")) for name in names)
    halves = [sum(link.bytes for link in found.links if link.name.startswith(f"engine {at}")) for at in (0, 1)]
    assert min(halves) > 0.2 * max(halves)


def test_steps_taken_together_change_nothing_for_several_engines() -> None:
    fast, slow = (run(SCRIPTS, ranks=1, engines=3, fast_forward=fast) for fast in (True, False))
    assert timeless(fast) == timeless(slow)


def test_time_is_idle_when_no_engine_works() -> None:
    """One lane after the other begins a second later, so that two engines are busy at different times."""
    one, both = (run(SCRIPTS, lanes=2, engines=engines) for engines in (1, 2))
    assert 0 < both.steps.idle_s < both.simulated_s
    busy_s = sum(kind.seconds for kind in both.steps.group.values())
    assert both.simulated_s - both.steps.idle_s <= busy_s + 1e-6
    assert len(both.records) == len(one.records)


def test_without_tiers_there_are_none() -> None:
    found = run(SCRIPTS, lanes=2, engines=2)
    assert found.links == links_of(()) == ()
    assert build_tiers(None, None, (), 1) == []  # type: ignore[arg-type]
