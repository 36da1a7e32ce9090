"""Which point is better, against brute force and by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.sim.plan_choose import attained, best_of, gain, improves, on_frontier, ranked
from tests.sim.plan_made import point, trial


def test_attained_is_the_worst_ratio() -> None:
    assert attained(point(1, 40.0), {"interactivity": 50}) == pytest.approx(0.8)
    assert attained(point(1, 80.0, ttft_s=4.0), {"interactivity": 50, "ttft_s": 2}) == pytest.approx(0.5)
    assert attained(point(1, 80.0), {"interactivity": 50}) == 1
    assert attained(point(1, 80.0), {}) == 1


def test_a_point_without_its_slow_requests_meets_nothing() -> None:
    assert attained(point(1, 80.0, ok=8, cut=1, failed=1), {"interactivity": 50}) == pytest.approx(0.8)
    assert attained(point(1, 80.0, ok=9, cut=1), {"interactivity": 50}) == 1
    assert attained(point(1, 80.0, ok=0, issued=0), {"interactivity": 50}) == 0


def test_the_slo_comes_before_the_rate() -> None:
    fast, met = trial(1000, 20.0), trial(500, 60.0)
    assert best_of([fast, met], {"interactivity": 50}) is met
    assert best_of([fast, met], {}) is fast
    assert best_of([met, fast], {"interactivity": 10}) is fast


def test_nearly_equal_rates_are_told_apart_by_interactivity() -> None:
    quick, slow, behind = trial(990, 80.0), trial(1000, 20.0), trial(970, 90.0)
    assert best_of([slow, quick, behind], {}) is quick


def test_a_tie_is_not_won_by_queueing() -> None:
    """Fewer slots make answers faster once they have begun, and later."""
    base = trial(1000, 50.0)
    queued = trial(1001, 80.0, p90_e2e_interactivity=40.0)
    assert best_of([base, queued], {}) is base and not improves(queued, base, {})
    assert improves(trial(1001, 40.0, p90_e2e_interactivity=60.0), base, {})
    assert improves(queued, base, {"interactivity": 70}), "an SLO asks for nothing else"


def test_ranked_is_the_best_of_what_is_left() -> None:
    close, first, slow, third = trial(990, 50.0), trial(995, 80.0), trial(100, 200.0), trial(900, 90.0)
    assert ranked([close, slow, first, third], {}) == [first, close, third, slow]
    assert ranked([close, slow, first, third], {"interactivity": 150})[0] is slow
    assert ranked([], {}) == []


def test_improves_needs_more_than_noise() -> None:
    base = trial(1000, 50.0)
    assert improves(trial(1030, 50.0), base, {})
    assert not improves(trial(1005, 50.5), base, {})
    assert improves(trial(1000, 60.0), base, {})
    assert not improves(trial(900, 90.0), base, {})
    assert improves(trial(500, 90.0), base, {"interactivity": 80})
    assert not improves(base, base, {})


def test_gain() -> None:
    assert gain(150, 100) == pytest.approx(0.5)
    assert gain(None, 100) == gain(1, None) == gain(1, 0) == 0


POINTS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)


@given(POINTS)
def test_frontier_against_brute_force(pairs: list[tuple[int, int]]) -> None:
    trials = [trial(float(rate), float(speed)) for rate, speed in pairs]
    found = on_frontier(trials)
    kept = {(t.point.tokens_per_gpu_s, t.point.p90_interactivity) for t in found}
    assert len(kept) == len(found)
    expected = {
        (float(r), float(s))
        for r, s in pairs
        if not any((r2 >= r and s2 >= s) and (r2, s2) != (r, s) for r2, s2 in pairs)
    }
    assert kept == expected
    speeds = [t.point.p90_interactivity or 0.0 for t in found]
    assert speeds == sorted(speeds)


@given(POINTS, st.integers(1, 6))
def test_the_best_is_never_worse_in_both(pairs: list[tuple[int, int]], limit: int) -> None:
    trials = [trial(float(rate), float(speed)) for rate, speed in pairs]
    slo = {"interactivity": float(limit)}
    best = best_of(trials, slo)
    for one in trials:
        assert attained(one.point, slo) <= attained(best.point, slo) + 0.005
        if attained(one.point, slo) >= 1:
            assert one.point.tokens_per_gpu_s * 0.98 <= best.point.tokens_per_gpu_s
