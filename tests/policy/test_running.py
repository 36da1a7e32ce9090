"""What a stream in a turn is worth: against the definition, summed up in small steps, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.policy.hazard import FRESH_SHARE, KIND_TURNS, MOST_RETURNS, Hazards, Kind
from samovar.policy.pace import PACES, Pace
from samovar.policy.priors import AFTER_ANSWER, AFTER_TOOL_CALL, TURNS, Gaps, rates_of
from samovar.policy.running import HORIZONS_S, QUANTILES, Running
from samovar.policy.silence import EDGES_S, Curve, cumulated

USUAL = Pace().level
STEP_S = 0.05
LONGEST_TRIED_S = 40.0
TOOL_CALL, ANSWER = (Curve(EDGES_S, rates_of((1.0, gaps))) for gaps in (AFTER_TOOL_CALL, AFTER_ANSWER))
TURN_RATES = rates_of((1.0, TURNS))
RATES = st.sampled_from((0.002, 0.01, 0.05, 0.2))


def _flat(rate: float) -> Curve:
    return Curve(EDGES_S, [rate] * len(EDGES_S))


def _rest_s(rates: list[float], elapsed_s: float, share: float) -> float:
    """How much longer it takes, step by step."""
    left, rest_s = 1.0, 0.0
    while left > 1.0 - share:
        bin_ = max(at for at, edge in enumerate(EDGES_S) if edge <= elapsed_s + rest_s)
        left *= exp(-rates[bin_] * STEP_S)
        rest_s += STEP_S
    return rest_s


def _tried(rates: list[float], silences: list[tuple[float, float]], elapsed_s: float) -> float:
    """The index by its definition, for silences of constant rates."""
    rests_s = [_rest_s(rates, elapsed_s, share) for share in QUANTILES]
    best = 0.0
    for further_s in HORIZONS_S:
        horizon_s = rests_s[len(rests_s) // 2] + further_s
        ended = waited = 0.0
        for rest_s in rests_s:
            after_s = max(0.0, horizon_s - rest_s)
            waited += min(rest_s, horizon_s)
            for weight, rate in silences:
                ended += weight * (1.0 - exp(-rate * after_s))
                waited += weight * (1.0 - exp(-rate * after_s)) / rate
        best = max(best, ended / waited)
    return best


@given(st.sampled_from((0.05, 0.2, 1.0)), st.sampled_from((0.05, 0.2, 1.0)), RATES, RATES, st.sampled_from((0.0, 7.0)))
@settings(max_examples=60, deadline=None)
def test_the_index_is_the_best_horizon(first: float, later: float, one: float, other: float, elapsed_s: float) -> None:
    rates = [first if edge < 10 else later for edge in EDGES_S]
    index = Running(rates, [(0.3, _flat(one)), (0.7, _flat(other))]).index(elapsed_s)
    assert index == pytest.approx(_tried(rates, [(0.3, one), (0.7, other)], elapsed_s), rel=0.05)


def test_turns_that_are_about_to_end_are_worth_more() -> None:
    """A turn that takes about a minute, and one that takes about six seconds."""
    long = Running(rates_of((1.0, Gaps(60.0, 75.0, 0.0))), [(1.0, TOOL_CALL)])
    assert long.index(0.0) < long.index(30.0) < long.index(60.0)
    assert long.index(0.0) < Running(TURN_RATES, [(1.0, TOOL_CALL)]).index(0.0)


def test_a_silence_has_to_come_first() -> None:
    """Worth less than when the turn is over, and nearly that if it is over at once."""
    over = TOOL_CALL.index(0.0)
    assert Running(TURN_RATES, [(1.0, TOOL_CALL)]).index(0.0) < 0.8 * over
    assert Running([1000.0] * len(EDGES_S), [(1.0, TOOL_CALL)]).index(0.0) == pytest.approx(over, rel=0.1)


def test_how_turns_end_is_a_mixture() -> None:
    worth = [Running(TURN_RATES, [(1 - share, TOOL_CALL), (share, ANSWER)]).index(2.0) for share in (0, 0.3, 0.7, 1)]
    assert worth == sorted(worth, reverse=True) and worth[0] > 3 * worth[-1]


def test_inside_a_bin_of_the_turn_it_is_the_same() -> None:
    running = Running(TURN_RATES, [(1.0, TOOL_CALL)])
    assert running.index(5.0) == running.index(6.9) != running.index(7.0)


@pytest.mark.parametrize("elapsed_s", [*EDGES_S, 1e7])
def test_a_turn_of_any_length_is_worth_something(elapsed_s: float) -> None:
    for rates in (TURN_RATES, [1e-9] * len(EDGES_S)):
        assert 0.0 < Running(rates, [(0.5, TOOL_CALL), (0.5, ANSWER)]).index(elapsed_s) < 1.0


# -- of what is learned --------------------------------------------------------------------------------------------


def _running(
    hazards: Hazards,
    own: Mapping[Kind, float] | None = None,
    *,
    sub_agent: bool = False,
    tool_level: int = USUAL,
    answer_level: int = USUAL,
) -> Running:
    return hazards.running(own or {}, sub_agent=sub_agent, tool_level=tool_level, answer_level=answer_level)


def _later(hazards: Hazards) -> None:
    """So many turns on that new rates are made."""
    for _ in range(1 + int(FRESH_SHARE * (KIND_TURNS + MOST_RETURNS))):
        hazards.of(Kind.RUNNING).counted()


def test_how_the_stream_s_own_turns_end_takes_over() -> None:
    hazards = Hazards()
    before = _running(hazards).index(0.0)
    some, many = (_running(hazards, {Kind.STOP: turns}).index(0.0) for turns in (5.0, 200.0))
    assert before > some > many
    answers = Running(hazards.of(Kind.RUNNING).rates(), [(1.0, ANSWER)]).index(0.0)
    assert many == pytest.approx(answers, rel=0.25)
    assert _running(hazards, {Kind.OTHER: 0.0}).index(0.0) == before


def test_what_was_made_stays_as_it_is() -> None:
    hazards = Hazards()
    made = _running(hazards)
    before = made.index(0.0)
    hazards.of(Kind.RUNNING).silent(0, 10_000.0)
    _later(hazards)
    assert made.index(0.0) == before
    assert _running(hazards).index(0.0) < before, "turns never end in their first second"


def test_it_goes_by_how_turns_ended() -> None:
    hazards = Hazards()
    before, of_sub_agents = _running(hazards).index(0.0), _running(hazards, sub_agent=True).index(0.0)
    for _ in range(300):
        hazards.ended(Kind.STOP, sub_agent=False)
    _later(hazards)
    assert _running(hazards).index(0.0) < 0.7 * before
    assert _running(hazards, sub_agent=True).index(0.0) == of_sub_agents, "they are counted apart"


def test_an_end_that_is_taken_back_was_none() -> None:
    hazards = Hazards()
    before = _running(hazards).index(0.0)
    for times in (1.0, -1.0):
        for _ in range(200):
            hazards.ended(Kind.OTHER, sub_agent=False, times=times)
    _later(hazards)
    assert _running(hazards).index(0.0) == pytest.approx(before)
    for _ in range(1000):
        hazards.ended(Kind.TOOL_CALLS, sub_agent=False, times=-1.0)
    _later(hazards)
    assert 0.0 < _running(hazards).index(0.0) < before, "never less than none"


def test_how_turns_end_may_change() -> None:
    hazards = Hazards()
    for _ in range(int(5 * MOST_RETURNS)):
        hazards.ended(Kind.STOP, sub_agent=False)
    for _ in range(int(2 * MOST_RETURNS)):
        hazards.ended(Kind.TOOL_CALLS, sub_agent=False)
    _later(hazards)
    tool_calls = Running(hazards.of(Kind.RUNNING).rates(), [(1.0, TOOL_CALL)]).index(0.0)
    assert _running(hazards).index(0.0) == pytest.approx(tool_calls, rel=0.35)


def test_a_sub_agent_that_answers_is_done() -> None:
    hazards = Hazards()
    for sub_agent in (False, True):
        for _ in range(1800):
            hazards.ended(Kind.STOP, sub_agent=sub_agent)
    assert _running(hazards, sub_agent=True).index(0.0) < _running(hazards).index(0.0) / 2


def test_it_goes_by_the_stream_s_pace() -> None:
    hazards = Hazards()
    by_level = [_running(hazards, tool_level=level).index(0.0) for level in range(len(PACES))]
    assert by_level == sorted(by_level, reverse=True) and by_level[0] > 2 * by_level[-1]
    by_level = [_running(hazards, answer_level=level).index(0.0) for level in range(len(PACES))]
    assert by_level == sorted(by_level, reverse=True) and by_level[0] > by_level[-1]
    assert by_level[USUAL] == _running(hazards).index(0.0)


def test_the_rest_of_a_turn_is_where_its_hazard_reaches_the_quantile() -> None:
    running = Running(TURN_RATES, [(1.0, TOOL_CALL)])
    for bin_, start_s in enumerate(EDGES_S[:10]):
        before = cumulated(EDGES_S, TURN_RATES, start_s)
        for share, rest_s in zip(QUANTILES, running._rest_s(bin_), strict=True):
            assert cumulated(EDGES_S, TURN_RATES, start_s + rest_s) - before == pytest.approx(-log(1.0 - share))
