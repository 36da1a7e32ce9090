"""A stream's own pace: whether its silences so far were shorter or longer than its class's, and what that makes likely.

Every silence is a normal deviate: the one that a normal distribution has where the silence stands among its class's,
below 0 the shorter half. A stream's next one is taken to be normal around the shrunk mean of those before it. That
moves a silence in time rather than making it likelier at all times alike: a slow stream hardly ever returns in the
first seconds, and is as likely as others to return late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp, log
from statistics import NormalDist

from samovar.policy.silence import EDGES_S, LEAST_RATE

PACE_EDGES = (-0.75, -0.45, -0.15, 0.15, 0.45, 0.75)
PACES = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9)
"""Between the edges: the deviate around which the next silence is expected."""
PACE_MEMORY = 0.8
"""What an earlier silence counts for, against the one after it."""
PACE_TURNS = 4.0
"""Turns at the usual pace that every stream is taken to have behind it: a fifth of what makes silences differ is taken
to be the stream's own."""
_LONGEST_SCORE = 3.0
_CERTAIN = 25.0
"""A hazard's integral after which hardly anybody is left: too few to be told apart by deviates."""
_NORMAL = NormalDist()


class Pace:
    """Of one stream."""

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0.0

    def came_back(self, expected: float) -> None:
        """After a silence in which its class expected that many returns."""
        longer = min(max(exp(-expected), 1e-6), 1.0 - 1e-6)
        score = -_NORMAL.inv_cdf(longer)
        self._sum = PACE_MEMORY * self._sum + min(max(score, -_LONGEST_SCORE), _LONGEST_SCORE)
        self._count = PACE_MEMORY * self._count + 1.0

    @property
    def level(self) -> int:
        """Index in PACES."""
        return bisect_right(PACE_EDGES, self._sum / (self._count + PACE_TURNS))


def shifted(rates: Sequence[float], deviate: float) -> list[float]:
    """The hazard, by bin of EDGES_S, of silences whose deviates lie around `deviate` where those of `rates` lie
    around 0."""
    if deviate == 0.0:
        return list(rates)
    found: list[float] = []
    total = before = 0.0
    for at in range(len(EDGES_S) - 1):
        width = EDGES_S[at + 1] - EDGES_S[at]
        total += rates[at] * width
        if total > _CERTAIN:
            found += rates[at:]
            return found
        score = -_NORMAL.inv_cdf(min(max(exp(-total), 1e-15), 1.0 - 1e-15))
        lasting = _NORMAL.cdf(deviate - score)
        after = -log(lasting) if lasting > 0.0 else before + rates[at] * width
        found.append(max((after - before) / width, LEAST_RATE))
        before = max(before, after)
    found.append(rates[-1])
    return found
