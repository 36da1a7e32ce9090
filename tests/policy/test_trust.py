"""Hints: what they mean before any was judged, and what is left of those that turn out wrong."""

from __future__ import annotations

from bisect import bisect_right
import random

import pytest

from samovar.policy.hazard import MOST_RETURNS, Hazards, Kind
from samovar.policy.hints import HINT_KINDS, Hint
from samovar.policy.pace import Pace
from samovar.policy.spell import Spell
from samovar.policy.trust import Evidence, Trust, is_evidence


class Told:
    """Silences after tool calls, each under a hint."""

    def __init__(self) -> None:
        self.hazards, self.trust = Hazards(), Trust()
        self.signs = self.hazards.signs(Kind.TOOL_CALLS, "", Pace().level)

    def spell(self, *hints: Hint) -> Spell:
        curve = self.signs.usual().curve
        told = tuple(self.trust.told(hint, Kind.TOOL_CALLS, 0.0, curve) for hint in hints)
        return Spell(0.0, self.signs, told)


EXACT, SOON = Hint("resume_in", 60.0), Hint("resume_in", 30.0, bound="at_most")
LATER, OVER = Hint("resume_in", 300.0, bound="at_least"), Hint("release")
RETAIN = Hint("retain", 300.0)


def test_hints_are_believed_at_first() -> None:
    told = Told()
    plain = told.spell().index(1.0)
    assert told.spell(SOON).index(1.0) > plain > told.spell(LATER).index(1.0) > told.spell(OVER).index(1.0)
    assert told.spell(OVER).index(1.0) < plain / 100
    assert told.spell(EXACT).index(59.0) > 5 * told.spell().index(59.0)


def test_an_exact_time_is_waited_for_and_not_after_it() -> None:
    told = Told()
    hint = Hint("resume_in", 2000.0)
    at = [told.spell(hint).index(silent_s) for silent_s in (600.0, 1500.0, 1900.0)]
    assert at == sorted(at) and at[2] > 3 * at[0]
    assert told.spell(hint).index(2500.0) < at[0]


def test_of_two_exact_times_the_nearer_is_worth_more() -> None:
    """As soon as some were right: whatever the size of the time that is left."""
    told = Told()
    draw = random.Random(2)
    for _ in range(300):
        seconds = draw.choice((20.0, 70.0, 300.0, 1000.0, 3000.0))
        told.spell(Hint("resume_in", seconds)).ended(seconds)
    left = [
        (1000.0 - 400.0, told.spell(Hint("resume_in", 1000.0)).index(400.0)),
        (1000.0 - 700.0, told.spell(Hint("resume_in", 1000.0)).index(700.0)),
        (200.0, told.spell(Hint("resume_in", 300.0)).index(100.0)),
        (70.0, told.spell(Hint("resume_in", 70.0)).index(0.0)),
        (20.0, told.spell(Hint("resume_in", 20.0)).index(0.0)),
    ]
    assert [worth for _, worth in left] == sorted(worth for _, worth in left)


@pytest.mark.parametrize(("hint", "really_s"), [(OVER, 8.0), (LATER, 8.0), (SOON, 3000.0), (EXACT, 9.0)])
def test_a_hint_that_is_always_wrong_loses_its_weight(hint: Hint, really_s: float) -> None:
    told = Told()
    for _ in range(150):
        told.spell(hint).ended(really_s)
    with_hint, plain = told.spell(hint).index(1.0), told.spell().index(1.0)
    assert with_hint < 3 * plain
    if really_s < 60.0:
        assert with_hint > plain / 3


def test_a_hint_that_all_give_says_nothing_in_the_end() -> None:
    told = Told()
    draw = random.Random(3)
    for _ in range(600):
        told.spell(RETAIN).ended(draw.lognormvariate(2.5, 1.5))
    for silent_s in (1.0, 20.0, 200.0):
        assert told.spell(RETAIN).index(silent_s) == pytest.approx(told.spell().index(silent_s), rel=0.5)


def test_what_hints_were_worth_long_ago_is_forgotten() -> None:
    evidence = Evidence((0.0,), [1.0], [1.0])
    for expected, factor in ((1.0, 1.0), (4.0, 0.25)):
        for _ in range(int(4 * MOST_RETURNS)):
            evidence.silent(0, expected)
            evidence.came_back(0)
        assert evidence.factors() == pytest.approx([factor], rel=0.1)


def test_sizes_are_judged_apart() -> None:
    told = Told()
    short, long = Hint("resume_in", 10.0, bound="at_most"), Hint("resume_in", 3600.0, bound="at_most")
    for _ in range(100):
        told.spell(short).count(5000.0)
        told.spell(long).ended(60.0)
    assert told.spell(short).index(1.0) < told.spell(long).index(1.0)


def test_which_hints_are_evidence() -> None:
    assert [kind for kind in HINT_KINDS if not is_evidence(Hint(kind, 1.0))] == ["priority", "children"]
    assert all(is_evidence(Hint("resume_in", 1.0, bound=bound)) for bound in ("exact", "at_most", "at_least"))


def test_a_hint_counts_from_when_it_was_given() -> None:
    told = Told()
    before = told.spell().index(500.0)

    def late() -> Spell:
        """Silent for 500 s, then said to be back in 20 s."""
        spell = told.spell()
        given = told.trust.told(Hint("resume_in", 20.0), Kind.TOOL_CALLS, 500.0, told.signs.usual().curve)
        spell.tell((given,), 500.0)
        return spell

    assert _rate(late(), 520.0) > 5 * _rate(told.spell(), 520.0)
    assert _rate(late(), 499.0) == _rate(told.spell(), 499.0)
    for _ in range(50):
        late().ended(520.0)
    assert 5 * before < late().index(500.0) < late().index(515.0)


def _rate(spell: Spell, seconds: float) -> float:
    return spell.curve.rates[bisect_right(spell.curve.edges_s, seconds) - 1]


def test_a_time_of_zero_is_no_error() -> None:
    for bound in ("exact", "at_most", "at_least"):
        spell = Told().spell(Hint("resume_in", 0.0, bound=bound), Hint("retain", 0.0))
        assert spell.index(0.0) > 0.0
        spell.ended(1.0)


def test_classes_are_bounded() -> None:
    trust = Trust(max_classes=5)
    usual = Hazards().signs(Kind.STOP, "", Pace().level).usual().curve
    for power in range(20):
        trust.told(Hint("retain", 2.0**power), Kind.STOP, 0.0, usual)
    assert len(trust._classes) == 5


@pytest.mark.parametrize("silent_s", [60.0, 900.0, 7200.0])
@pytest.mark.parametrize("hint", [Hint("resume_in", 10.0), SOON])
def test_a_hint_is_believed_however_late_it_comes(hint: Hint, silent_s: float) -> None:
    """Half of what the same words are worth at the start of a silence, where streams come back sooner anyway."""
    told = Told()
    curve = told.signs.usual().curve
    early = told.spell(hint).index(0.0)
    late = Spell(0.0, told.signs)
    late.tell((told.trust.told(hint, Kind.TOOL_CALLS, silent_s, curve, silent_s),), silent_s)
    assert late.index(silent_s) > 0.4 * early > 3.0 * curve.index(silent_s)


def test_late_hints_that_are_wrong_lose_their_weight_and_early_ones_keep_theirs() -> None:
    told = Told()
    curve = told.signs.usual().curve
    early = told.spell(SOON).index(0.0) / told.spell().index(0.0)

    def late() -> Spell:
        spell = Spell(0.0, told.signs)
        spell.tell((told.trust.told(SOON, Kind.TOOL_CALLS, 900.0, curve, 900.0),), 900.0)
        return spell

    before = late().index(900.0)
    for _ in range(60):
        late().count(1500.0)
    assert late().index(900.0) < before / 4
    assert told.spell(SOON).index(0.0) / told.spell().index(0.0) > 0.8 * early
