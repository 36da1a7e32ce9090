"""Curves against the definition: the best of many horizons, found by trying them."""

from __future__ import annotations

from math import exp, inf, log

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.policy.priors import AFTER_ANSWER, AFTER_TOOL_CALL, Gaps, rates_of
from samovar.policy.silence import EDGES_S, Curve, cumulated

EDGES = (0.0, 1.0, 2.5, 6.0, 20.0)
RATES = st.lists(st.sampled_from((1e-6, 0.001, 0.02, 0.1, 0.5, 3.0)), min_size=5, max_size=5)


def _tried(rates: list[float], silent_s: float) -> float:
    """The index by its definition, over every edge ahead, a short horizon and no horizon's end."""
    best = 0.0
    horizons = [silent_s + 1e-9, *(edge for edge in EDGES if edge > silent_s), inf]
    for horizon in horizons:
        left, kept = 1.0, 0.0
        at = silent_s
        while at < horizon:
            bin_ = max(i for i, edge in enumerate(EDGES) if edge <= at)
            end = min(horizon, EDGES[bin_ + 1] if bin_ + 1 < len(EDGES) else inf)
            lasts = 0.0 if end == inf else exp(-rates[bin_] * (end - at))
            kept += left * (1.0 - lasts) / rates[bin_]
            left *= lasts
            at = end
        best = max(best, (1.0 - left) / kept if kept else rates[bin_])
    return best


@given(RATES, st.sampled_from((0.0, 0.4, 1.0, 2.0, 2.5, 5.9, 6.0, 19.0, 20.0, 500.0)))
@settings(max_examples=300, deadline=None)
def test_the_index_is_the_best_horizon(rates: list[float], silent_s: float) -> None:
    assert Curve(EDGES, rates).index(silent_s) == pytest.approx(_tried(rates, silent_s), rel=1e-5)


def test_a_falling_hazard_is_its_own_index_and_a_later_peak_is_waited_for() -> None:
    falling = Curve(EDGES, [0.5, 0.4, 0.3, 0.2, 0.1])
    assert [falling.index(s) for s in (0.0, 1.0, 30.0)] == [0.5, 0.4, 0.1]
    peak = Curve(EDGES, [1e-6, 1e-6, 1e-6, 3.0, 1e-6])
    assert [peak.index(s) for s in (0.0, 2.5, 5.9)] == pytest.approx([1 / 6.33, 1 / 3.83, 1 / 0.433], rel=0.01)
    assert peak.index(20.0) == pytest.approx(1e-6)


@given(RATES, st.floats(0.0, 30.0))
@settings(max_examples=100, deadline=None)
def test_half_of_the_silences_end_within_the_median(rates: list[float], silent_s: float) -> None:
    curve = Curve(EDGES, rates)
    median = curve.median_s(silent_s)
    if median is None:
        assert cumulated(EDGES, rates, EDGES[-1]) - cumulated(EDGES, rates, silent_s) < log(2.0)
    else:
        ends = cumulated(EDGES, rates, silent_s + median) - cumulated(EDGES, rates, silent_s)
        assert ends == pytest.approx(log(2.0), rel=1e-6)


@pytest.mark.parametrize("gaps", [AFTER_TOOL_CALL, AFTER_ANSWER])
def test_priors_have_the_quantiles_that_were_published(gaps: Gaps) -> None:
    rates = rates_of((1.0, gaps))
    ends = 1.0 - gaps.never
    for share, seconds in ((0.5, gaps.median_s), (0.9, gaps.p90_s)):
        # The hazard is constant inside a bin: at its edges it is exact, between them nearly.
        assert 1.0 - exp(-cumulated(EDGES_S, rates, seconds)) == pytest.approx(share * ends, abs=0.02)
    assert exp(-cumulated(EDGES_S, rates, EDGES_S[-1])) == pytest.approx(gaps.never, abs=0.01)


def test_a_silence_without_end_is_worth_next_to_nothing() -> None:
    curve = Curve((0.0, 5.0), [0.2, 0.0])
    assert curve.index(5.0) <= 1e-9
    assert curve.median_s(6.0) is None
