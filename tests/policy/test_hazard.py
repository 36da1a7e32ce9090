"""What is learned from silences: by kind, by tool, by a stream's own pace, and from those that never end."""

from __future__ import annotations

from bisect import bisect_right
import random

import pytest

from samovar.policy.hazard import FRESH_SHARE, KIND_TURNS, LEVEL_TURNS, MOST_RETURNS, Hazard, Hazards, Kind, Signs
from samovar.policy.pace import PACES, Pace, shifted
from samovar.policy.silence import EDGES_S, Curve
from samovar.policy.spell import Spell

USUAL = Pace().level
SLOWEST = len(PACES) - 1


def _returns(hazards: Hazards, kind: Kind, gaps_s: list[float], tool: str = "", level: int = USUAL) -> None:
    for gap_s in gaps_s:
        Spell(0.0, hazards.signs(kind, tool, level)).ended(gap_s)


def _fresh(hazard: Hazard) -> list[float]:
    """Its rates with all that was counted, also what is too little for new ones."""
    for _ in range(1 + int(FRESH_SHARE * (KIND_TURNS + MOST_RETURNS))):
        hazard.counted()
    return hazard.rates()


def _curve(hazards: Hazards, kind: Kind, tool: str = "") -> Curve:
    return Curve(EDGES_S, _fresh(hazards.of(kind, tool)))


def _worth(hazards: Hazards, tool: str, silent_s: float) -> float:
    return _curve(hazards, Kind.TOOL_CALLS, tool).index(silent_s)


def _at(signs: Signs, seconds: float) -> float:
    return _fresh(signs.hazard)[bisect_right(EDGES_S, seconds) - 1]


# -- classes -------------------------------------------------------------------------------------------------------


def test_before_anything_is_seen_tool_calls_come_back_sooner_than_answers() -> None:
    hazards = Hazards()
    for silent_s in (0.0, 10.0, 100.0):
        assert _curve(hazards, Kind.TOOL_CALLS).index(silent_s) > _curve(hazards, Kind.STOP).index(silent_s)
    assert _curve(hazards, Kind.TOOL_CALLS).median_s(0.0) == pytest.approx(9.0, rel=0.1)


def test_the_mean_of_what_is_seen_takes_over_from_the_prior() -> None:
    draw = random.Random(1)
    hazards = Hazards()
    _returns(hazards, Kind.STOP, [draw.expovariate(1 / 50) for _ in range(3000)])
    for rates in (_fresh(hazards.of(Kind.STOP)), _fresh(hazards.signs(Kind.STOP, "", USUAL).hazard)):
        for seconds in (2.5, 25.0, 100.0):
            assert rates[bisect_right(EDGES_S, seconds) - 1] == pytest.approx(1 / 50, rel=0.25)


def test_a_tool_is_judged_by_its_own_returns_and_a_new_one_by_those_of_all() -> None:
    hazards = Hazards()
    _returns(hazards, Kind.TOOL_CALLS, [5.0] * 30, "fast")
    _returns(hazards, Kind.TOOL_CALLS, [600.0] * 30, "slow")
    assert _worth(hazards, "fast", 0.0) > _worth(hazards, "new", 0.0) > _worth(hazards, "slow", 0.0)
    new = _fresh(hazards.of(Kind.TOOL_CALLS, "new"))
    assert new == pytest.approx(hazards.of(Kind.TOOL_CALLS).rates())
    assert _worth(hazards, "slow", 550.0) > _worth(hazards, "fast", 550.0), "one is due, the other is overdue"


def test_a_silence_that_goes_on_is_counted_though_it_never_ends() -> None:
    hazards = Hazards()
    before = _curve(hazards, Kind.STOP).index(100.0)
    for _ in range(int(KIND_TURNS)):
        Spell(0.0, hazards.signs(Kind.STOP, "", USUAL)).count(3600.0)
    assert _curve(hazards, Kind.STOP).index(100.0) < before / 2


def test_habits_may_change() -> None:
    hazards = Hazards()
    _returns(hazards, Kind.STOP, [4.0] * int(3 * MOST_RETURNS))
    _returns(hazards, Kind.STOP, [400.0] * int(MOST_RETURNS))
    assert hazards.of(Kind.STOP).num_returns <= MOST_RETURNS
    median_s = _curve(hazards, Kind.STOP).median_s(0.0)
    assert median_s is not None and median_s > 100


def test_tools_are_bounded() -> None:
    hazards = Hazards(max_tools=3)
    _returns(hazards, Kind.TOOL_CALLS, [600.0] * 40, "a")
    known = _fresh(hazards.of(Kind.TOOL_CALLS, "a"))
    for tool in "bcd":
        hazards.of(Kind.TOOL_CALLS, tool)
    assert len(hazards._tools) == 3
    assert hazards.of(Kind.TOOL_CALLS, "a").num_returns == 0.0, "called longest ago: begins anew"
    assert known != _fresh(hazards.of(Kind.TOOL_CALLS, "a"))


def test_a_tool_s_name_says_nothing_of_an_answer() -> None:
    hazards = Hazards()
    assert hazards.of(Kind.STOP, "bash") is hazards.of(Kind.STOP)


# -- rates ---------------------------------------------------------------------------------------------------------


def test_what_is_assumed_holds_until_something_is_counted() -> None:
    hazard = Hazard((0.1,) * len(EDGES_S), 0.5)
    assert hazard.rates() == pytest.approx([0.1] * len(EDGES_S))
    hazard.silent(3, 1000.0)
    changed = _fresh(hazard)
    assert changed[3] < 0.001
    assert changed[:3] + changed[4:] == pytest.approx([0.1] * (len(EDGES_S) - 1)), "a bin says nothing of another"


def test_the_mean_of_a_bin_by_hand() -> None:
    """The prior's ten turns spend 10 * (1 - exp(-0.5 * 1)) / 0.5 seconds in the first bin."""
    hazard = Hazard((0.5,) * len(EDGES_S), 10.0)
    hazard.silent(0, 4.0)
    hazard.came_back(0)
    assert _fresh(hazard)[0] == pytest.approx((1.0 + 3.934693) / (4.0 + 7.869387), rel=1e-6)


def test_new_rates_are_made_only_when_they_differ() -> None:
    hazard = Hazards().of(Kind.STOP)
    first, version = hazard.rates(), hazard.version
    for _ in range(int(FRESH_SHARE * KIND_TURNS)):
        hazard.silent(0, 1.0)
        hazard.counted()
        assert hazard.rates() is first and hazard.version == version
    hazard.silent(0, 1.0)
    hazard.counted()
    assert hazard.version == version + 1
    assert hazard.rates()[0] < first[0]


def test_what_a_tool_shows_makes_new_rates_of_all_tools() -> None:
    hazards = Hazards()
    of_all = hazards.of(Kind.TOOL_CALLS)
    before, version = of_all.rates(), of_all.version
    _returns(hazards, Kind.TOOL_CALLS, [600.0] * 30, "slow", SLOWEST)
    assert of_all.version > version and of_all.rates()[0] < before[0]


def test_a_class_is_the_same_whoever_asks_until_its_rates_change() -> None:
    signs = Hazards().signs(Kind.STOP, "", USUAL)
    usual = signs.usual()
    assert signs.usual() is usual
    signs.hazard.silent(0, 1000.0)
    _fresh(signs.hazard)
    assert signs.usual() is not usual
    assert signs.usual().curve.rates[0] < usual.curve.rates[0]
    assert signs.usual().base == signs.at_every_pace.rates()


def test_a_pace_moves_what_is_known_of_the_class() -> None:
    hazards = Hazards()
    for kind, tool in ((Kind.STOP, ""), (Kind.TOOL_CALLS, "bash")):
        rates = hazards.of(kind, tool).rates()
        for level, deviate in enumerate(PACES):
            assert hazards.signs(kind, tool, level).hazard.rates() == pytest.approx(shifted(rates, deviate))


def test_what_one_pace_shows_is_learned_for_it_and_a_little_for_the_class() -> None:
    """Streams taken for slow ones that come back at once."""
    hazards = Hazards()
    slow, usual, other = (
        hazards.signs(kind, "", level)
        for kind, level in ((Kind.TOOL_CALLS, SLOWEST), (Kind.TOOL_CALLS, USUAL), (Kind.STOP, SLOWEST))
    )
    before = [_at(signs, 2.5) for signs in (slow, usual, other)]
    _returns(hazards, Kind.TOOL_CALLS, [2.5] * int(LEVEL_TURNS), "", SLOWEST)
    after = [_at(signs, 2.5) for signs in (slow, usual, other)]
    assert after[0] / before[0] > 1.5 * after[1] / before[1] > 1.5
    assert after[2] == before[2]
