"""A stream's own pace: what of its silences is its own, and what a pace makes of a class's hazard."""

from __future__ import annotations

from math import exp, log
from statistics import NormalDist

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.policy.pace import PACES, Pace, shifted
from samovar.policy.priors import AFTER_ANSWER, AFTER_TOOL_CALL, Gaps, rates_of
from samovar.policy.silence import EDGES_S, LEAST_RATE, cumulated

QUICKEST, SLOWEST = 0, len(PACES) - 1
NORMAL = NormalDist()


def test_pace_tells_quick_streams_from_slow_ones_and_forgets() -> None:
    quick, slow, usual = Pace(), Pace(), Pace()
    for _ in range(6):
        quick.came_back(0.1)
        slow.came_back(3.0)
        usual.came_back(log(2.0))
    assert PACES[quick.level] < PACES[usual.level] < PACES[slow.level]
    assert PACES[usual.level] == PACES[Pace().level] == 0.0
    for _ in range(12):
        quick.came_back(3.0)
    assert quick.level == slow.level


@pytest.mark.parametrize(("expected", "level"), [(0.0, QUICKEST), (1e9, SLOWEST)])
def test_a_silence_out_of_all_proportion_is_no_error(expected: float, level: int) -> None:
    pace = Pace()
    pace.came_back(expected)
    assert pace.level not in (QUICKEST, SLOWEST), "one silence says little"
    for _ in range(10):
        pace.came_back(expected)
    assert pace.level == level


@pytest.mark.parametrize("deviate", [-0.9, -0.3, 0.3, 0.9])
@pytest.mark.parametrize("gaps", [AFTER_TOOL_CALL, AFTER_ANSWER])
def test_silences_of_a_pace_lie_around_its_deviate(gaps: Gaps, deviate: float) -> None:
    rates = rates_of((1.0, gaps))
    moved = shifted(rates, deviate)
    for edge in EDGES_S[1:]:
        before, after = (NORMAL.inv_cdf(exp(-cumulated(EDGES_S, of, edge))) for of in (rates, moved))
        assert after - before == pytest.approx(deviate, abs=1e-6)


def test_a_slow_pace_is_no_lower_hazard_at_all_times() -> None:
    """Log-normal silences, all as much longer: late in a silence one that is slow is likelier to return than others."""
    rates = rates_of((1.0, Gaps(10.0, 100.0, 0.0)))
    slow = shifted(rates, 0.9)
    ratios = [of_slow / of_all for of_slow, of_all in zip(slow, rates, strict=True)]
    assert ratios[:12] == sorted(ratios[:12]) and ratios[0] < 0.2 < 0.7 < ratios[20]


@given(st.lists(st.floats(LEAST_RATE, 5.0), min_size=len(EDGES_S), max_size=len(EDGES_S)), st.sampled_from(PACES))
def test_any_hazard_moved_is_a_hazard(rates: list[float], deviate: float) -> None:
    moved = shifted(rates, deviate)
    assert len(moved) == len(rates) and all(LEAST_RATE <= rate < 1e3 for rate in moved)
    if deviate == 0.0:
        assert moved == rates
