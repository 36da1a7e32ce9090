"""A silence's parts: each second of it is counted once, in its bin, whoever looks when, and under the hints of then."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.policy.hazard import LONGEST_S, Hazard, Hazards, Kind, Signs
from samovar.policy.hints import Hint
from samovar.policy.pace import Pace
from samovar.policy.silence import EDGES_S, cumulated
from samovar.policy.spell import Spell
from samovar.policy.trust import Told, Trust

USUAL = Pace().level
BEGAN_S = 10.0


def _signs(kind: Kind = Kind.STOP) -> Signs:
    return Hazards().signs(kind, "", USUAL)


def _told(signs: Signs, hint: Hint, at_s: float = BEGAN_S) -> Told:
    return Trust().told(hint, signs.kind, at_s, signs.usual().curve)


def _seconds(until_s: float, since_s: float = 0.0) -> list[float]:
    """Of a silence, by bin."""
    ends = (*EDGES_S[1:], float("inf"))
    return [max(0.0, min(end, until_s) - max(start, since_s)) for start, end in zip(EDGES_S, ends, strict=True)]


def _counted(hazard: Hazard) -> list[float]:
    return [*hazard._seconds, *hazard._returns]


HINTS = (
    (),
    (Hint("resume_in", 33.0),),
    (Hint("resume_in", 50.0, bound="at_most"), Hint("retain", 700.0)),
    (Hint("release"),),
)


@given(
    st.lists(st.floats(0.0, 100_000.0), max_size=6),
    st.floats(0.0, 2 * LONGEST_S),
    st.booleans(),
    st.sampled_from(HINTS),
)
@settings(max_examples=150, deadline=None)
def test_every_second_is_counted_once(looks: list[float], until_s: float, ends: bool, hints: tuple[Hint, ...]) -> None:
    signs = _signs()
    spell = Spell(BEGAN_S, signs, tuple(_told(signs, hint) for hint in hints))
    for look_s in sorted(look for look in looks if look <= until_s):
        spell.count(BEGAN_S + look_s)
        spell.index(BEGAN_S + look_s)
    if ends:
        spell.ended(BEGAN_S + until_s)
    else:
        spell.count(BEGAN_S + until_s)
    silent_s = (BEGAN_S + until_s) - BEGAN_S  # as rounded as the spell sees it
    seconds = _seconds(min(silent_s, LONGEST_S))
    returns = [0.0] * len(EDGES_S)
    if ends and silent_s <= LONGEST_S:
        returns[max(at for at, edge in enumerate(EDGES_S) if edge <= silent_s)] = 1.0
    for hazard in (signs.hazard, signs.at_every_pace):
        assert _counted(hazard) == pytest.approx([*seconds, *returns], abs=1e-6)


def test_looking_changes_nothing() -> None:
    signs = _signs()
    spell = Spell(0.0, signs)
    worth = [spell.index(now) for now in (0.0, 3.0, 700.0, 1e6)]
    assert [spell.index(now) for now in (0.0, 3.0, 700.0, 1e6)] == worth
    assert _counted(signs.hazard) == [0.0] * 2 * len(EDGES_S)
    assert spell.index(-5.0) == worth[0], "a clock that went back is no silence"


def test_what_is_learned_reaches_it_with_refresh() -> None:
    signs = _signs()
    spell = Spell(0.0, signs)
    before = spell.index(0.0)
    for _ in range(200):
        Spell(0.0, signs).ended(0.5)
    assert spell.index(0.0) == before
    spell.refresh()
    assert spell.index(0.0) > 2 * before


def test_what_came_back_says_what_was_expected() -> None:
    signs = _signs()
    base = list(signs.usual().base)
    assert Spell(0.0, signs).ended(200.0) == pytest.approx(cumulated(EDGES_S, base, 200.0))


def test_judged_it_counts_for_the_other_classes_from_its_start() -> None:
    hazards = Hazards()
    opened, stop = hazards.signs(Kind.OPEN, "", USUAL), hazards.signs(Kind.STOP, "", USUAL)
    spell = Spell(0.0, opened)
    spell.count(40.0)
    spell.judged(stop)
    assert spell.signs is stop and spell.index(40.0) == stop.usual().curve.index(40.0)
    spell.ended(50.0)
    assert stop.hazard._seconds == _seconds(50.0) and sum(stop.hazard._returns) == 1.0
    assert opened.hazard._seconds == _seconds(40.0) and sum(opened.hazard._returns) == 0.0


@pytest.mark.parametrize("hint", [Hint("resume_in", 60.0), Hint("resume_in", 60.0, bound="at_least"), Hint("release")])
def test_a_hint_is_judged_from_when_it_was_given(hint: Hint) -> None:
    """What its class of hints is told: the returns expected after it, and the one that came, in the bins of then."""
    signs = _signs()
    told = _told(signs, hint, BEGAN_S + 100.0)
    assumed, returned = list(told.evidence._expected), list(told.evidence._returns)
    spell = Spell(BEGAN_S, signs)
    spell.tell((told,), BEGAN_S + 100.0)
    rates = spell.curve.rates
    assert rates[: len(_before(spell, 100.0))] == pytest.approx(_before(spell, 100.0)), "nothing is said of before"
    usual = signs.usual().curve.rates
    spell.ended(BEGAN_S + 130.0)
    more = [now - then for now, then in zip(told.evidence._expected, assumed, strict=True)]
    assert sum(more) == pytest.approx(cumulated(EDGES_S, usual, 130.0) - cumulated(EDGES_S, usual, 100.0))
    came = [now - then for now, then in zip(told.evidence._returns, returned, strict=True)]
    half = max(at for at, edge in enumerate(told.evidence.edges) if edge <= 30.0 / told.unit_s)
    assert came == [float(at == half) for at in range(len(came))]


def test_what_lasted_under_an_earlier_hint_counts_for_that_one() -> None:
    signs = _signs()
    first, second = _told(signs, Hint("release"), 0.0), _told(signs, Hint("demote"), 100.0)
    assumed = [sum(told.evidence._expected) for told in (first, second)]
    early = cumulated(EDGES_S, signs.usual().curve.rates, 100.0)
    spell = Spell(0.0, signs, (first,))
    spell.tell((second,), 100.0)
    learned = signs.usual().curve.rates
    later = cumulated(EDGES_S, learned, 130.0) - cumulated(EDGES_S, learned, 100.0)
    spell.count(130.0)
    more = [sum(told.evidence._expected) - then for told, then in zip((first, second), assumed, strict=True)]
    assert more == pytest.approx([early, later])


def _before(spell: Spell, silent_s: float) -> list[float]:
    """The usual rates at the cuts of its curve up to then."""
    usual = spell.signs.usual().curve.rates
    cuts = [cut for cut in spell.curve.edges_s if cut < silent_s]
    return [usual[max(at for at, edge in enumerate(EDGES_S) if edge <= cut)] for cut in cuts]


def test_hints_multiply() -> None:
    signs = _signs(Kind.TOOL_CALLS)
    hints = Hint("prefetch"), Hint("retain", 300.0)
    both = Spell(0.0, signs, tuple(_told(signs, hint, 0.0) for hint in hints))
    one, other = (Spell(0.0, signs, (_told(signs, hint, 0.0),)) for hint in hints)
    for cut, rate in zip(both.curve.edges_s, both.curve.rates, strict=True):
        found = [_rate(spell, cut) for spell in (one, other, Spell(0.0, signs))]
        assert rate == pytest.approx(found[0] * found[1] / found[2])


def _rate(spell: Spell, seconds: float) -> float:
    return spell.curve.rates[max(at for at, edge in enumerate(spell.curve.edges_s) if edge <= seconds)]
