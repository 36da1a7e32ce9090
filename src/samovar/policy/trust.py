"""What hints are worth: evidence about a return, weighed by what came of hints like it.

Hints are put into classes by kind, bound, size (a factor of two), how the turn ended and how late they are given. The
time since a hint is measured in units of the time it states, and cut into bins. In each bin, a class has a factor on
the hazard that there would be without the hint: returns seen, over returns expected. Both begin with what a few hints
would have shown that are mostly right, so a hint works from the first one on; those that turn out wrong drive their
factors to 1, and that is all the weight they have left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log2

from samovar.policy.hazard import MOST_RETURNS, Kind
from samovar.policy.hints import Bound, Hint, HintKind
from samovar.policy.silence import Curve, cumulated

MAX_CLASSES = 256
LEAST_FACTOR, MOST_FACTOR = 1e-4, 1e6
LATE_S = 15.0
"""A hint given later than that in a silence is in a class of its own, one for every factor of four."""
SLACK = 0.05
"""An exact time is met if it is within this share of it."""

# fmt: off
_EXACT = (0, 0.25, 0.5, 0.7, 0.85, 1 - SLACK, 1 + SLACK, 1.2, 1.5, 2, 4)
_AT_MOST = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.5, 3, 10)
_AT_LEAST = (0, 0.25, 0.5, 0.75, 1, 1.5, 3, 10)
# fmt: on
_ALWAYS = (0.0,)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a hint says, and how it is taken before any has been judged."""

    edges: tuple[float, ...]
    right: float
    """Share of such hints that are true; the others say nothing."""
    hints: float
    """How many of them the assumption counts for."""


_MEANINGS: dict[tuple[HintKind, Bound | None], _Meaning] = {
    ("resume_in", "exact"): _Meaning(_EXACT, 0.9, 8.0),
    ("resume_in", "at_most"): _Meaning(_AT_MOST, 0.9, 8.0),
    ("resume_in", "at_least"): _Meaning(_AT_LEAST, 0.9, 8.0),
    ("retain", None): _Meaning(_AT_MOST, 0.6, 8.0),
    ("release", None): _Meaning(_ALWAYS, 0.98, 2.0),
    ("demote", None): _Meaning(_ALWAYS, 0.6, 4.0),
    ("prefetch", None): _Meaning(_ALWAYS, 0.6, 4.0),
}
PREFETCH_FACTOR = 3.0
"""How much sooner a stream comes back whose blocks a client wants brought up."""


def is_evidence(hint: Hint) -> bool:
    return _key(hint) in _MEANINGS


def _key(hint: Hint) -> tuple[HintKind, Bound | None]:
    return hint.kind, hint.bound if hint.kind == "resume_in" else None


class Evidence:
    """Counts of one class of hints."""

    __slots__ = ("_expected", "_num_returns", "_returns", "edges")

    def __init__(self, edges: tuple[float, ...], returns: list[float], expected: list[float]) -> None:
        """`edges`: where the bins begin, in units of the stated time."""
        self.edges = edges
        self._returns = returns
        self._expected = expected
        self._num_returns = 0.0

    def silent(self, bin_: int, expected: float) -> None:
        self._expected[bin_] += expected

    def came_back(self, bin_: int) -> None:
        self._returns[bin_] += 1.0
        self._num_returns += 1.0
        if self._num_returns > MOST_RETURNS:
            self._returns = [count / 2 for count in self._returns]
            self._expected = [count / 2 for count in self._expected]
            self._num_returns /= 2

    def factors(self) -> list[float]:
        """On the hazard, by bin."""
        return [
            min(max(returns / expected, LEAST_FACTOR), MOST_FACTOR) if expected > 0.0 else 1.0
            for returns, expected in zip(self._returns, self._expected, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Told:
    """A hint on a stream, with what hints like it have been worth."""

    hint: Hint
    at_s: float
    unit_s: float
    """Seconds of one unit of the evidence's edges."""
    evidence: Evidence

    def edges_s(self, since_s: float) -> list[float]:
        """Where its bins begin, as seconds after `since_s`."""
        offset_s = self.at_s - since_s
        return [offset_s + edge * self.unit_s for edge in self.evidence.edges]

    def bins(self, since_s: float, cuts_s: Sequence[float]) -> list[int]:
        """Its bin between each cut and the next one, of which none has an edge inside; -1 before the hint was given."""
        edges_s = self.edges_s(since_s)
        # Judged by their middles: an edge may have been rounded to either side of its cut.
        ends = [*cuts_s[1:], cuts_s[-1] + 2.0]
        return [bisect_right(edges_s, (cut + end) / 2) - 1 for cut, end in zip(cuts_s, ends, strict=True)]


def _unit_s(hint: Hint) -> float:
    return max(hint.seconds, 1e-3) if len(_MEANINGS[_key(hint)].edges) > 1 else 1.0


class Trust:
    """All classes of hints. Bounded: those used longest ago are forgotten."""

    def __init__(self, max_classes: int = MAX_CLASSES) -> None:
        self._classes: OrderedDict[tuple[object, ...], Evidence] = OrderedDict()
        self._max_classes = max_classes

    def told(self, hint: Hint, kind: Kind, now: float, usual: Curve, silent_s: float = 0.0) -> Told:
        """`usual`: the hazard that there would be without the hint, which must be evidence; `silent_s`: how long the
        silence had lasted when it was given. Late in a silence little is expected without it, so hints have a class
        of their own there: a true one means more."""
        unit_s = _unit_s(hint)
        size = round(log2(unit_s)) if unit_s != 1.0 else 0
        late = 1 + int(log2(silent_s / LATE_S) / 2) if silent_s >= LATE_S else 0
        key = (*_key(hint), size, kind, late)
        evidence = self._classes.get(key)
        if evidence is None:
            evidence = self._classes[key] = _assumed(hint, _from(usual, silent_s if late else 0.0))
            if len(self._classes) > self._max_classes:
                self._classes.popitem(last=False)
        self._classes.move_to_end(key)
        return Told(hint, now, unit_s, evidence)


def _from(usual: Curve, silent_s: float) -> Curve:
    """What is left of a hazard after that much of the silence."""
    if silent_s <= 0.0:
        return usual
    at = bisect_right(usual.edges_s, silent_s) - 1
    return Curve([0.0, *(edge - silent_s for edge in usual.edges_s[at + 1 :])], usual.rates[at:])


def _assumed(hint: Hint, usual: Curve) -> Evidence:
    """What `hints` of the kind would have shown, of which the share `right` are true."""
    edges_s, rates = usual.edges_s, usual.rates
    meaning = _MEANINGS[_key(hint)]
    unit_s = _unit_s(hint)
    cuts = sorted({*edges_s, *(edge * unit_s for edge in meaning.edges)})
    returns, expected = [0.0] * len(meaning.edges), [0.0] * len(meaning.edges)
    plain = 1.0
    at_unit = exp(-cumulated(edges_s, rates, unit_s))
    lasting = 1.0
    for start, stop in pairwise(cuts):
        rate = rates[bisect_right(edges_s, start) - 1]
        plain *= exp(-rate * (stop - start))
        later = meaning.right * _true(hint, stop, unit_s, plain, at_unit) + (1.0 - meaning.right) * plain
        bin_ = bisect_right(meaning.edges, start / unit_s) - 1
        returns[bin_] += meaning.hints * max(0.0, lasting - later)
        expected[bin_] += meaning.hints * rate * (stop - start) * (lasting + later) / 2
        lasting = later
    return Evidence(meaning.edges, returns, expected)


def _true(hint: Hint, seconds: float, unit_s: float, plain: float, at_unit: float) -> float:
    """The share of streams still silent after that time if the hint is true. `plain`: without it; `at_unit`: without it
    after the stated time."""
    if hint.kind in ("release", "demote"):
        return 1.0
    if hint.kind == "prefetch":
        return float(plain**PREFETCH_FACTOR)
    if hint.kind == "resume_in" and hint.bound == "exact":
        early, late = (1.0 - SLACK) * unit_s, (1.0 + SLACK) * unit_s
        return min(1.0, max(0.0, (late - seconds) / (late - early)))
    if hint.kind == "resume_in" and hint.bound == "at_least":
        return 1.0 if seconds <= unit_s else plain / max(at_unit, 1e-12)
    return max(0.0, (plain - at_unit) / (1.0 - at_unit)) if at_unit < 1.0 else float(seconds < unit_s)
