"""A silence that ends at some time, or never: its hazard, and what it is worth to wait.

The hazard is the chance per second that the silence ends now, given that it has lasted so far. It is constant between
edges. What a cached block of a silent stream is worth is its *Gittins index*: the best, over horizons h, of

    P(the silence ends within h) / expected seconds until it ends or h is over

in hits per second that the block is kept. A hazard that only falls makes it the hazard itself; one that rises later
(a tool that takes a minute) makes it worth keeping the block until then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp, expm1, log

# fmt: off
EDGES_S: tuple[float, ...] = (
    0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200,
    10_800, 14_400, 21_600, 43_200, 86_400,
)
# fmt: on
"""Where the bins in which silences are counted begin; the last one is open. Times people state are among them."""
LEAST_RATE = 1e-9
"""Nothing is ever certain not to come back."""


def cumulated(edges_s: Sequence[float], rates: Sequence[float], seconds: float) -> float:
    """The hazard's integral from 0: minus the logarithm of the chance that it lasts that long."""
    total = 0.0
    for at, rate in enumerate(rates):
        if at + 1 == len(edges_s) or seconds < edges_s[at + 1]:
            return total + rate * (seconds - edges_s[at])
        total += rate * (edges_s[at + 1] - edges_s[at])
    return total


class Curve:
    """Immutable. Times are seconds of silence."""

    __slots__ = ("_cost", "_gain", "_index", "_left", "_next", "edges_s", "rates")

    def __init__(self, edges_s: Sequence[float], rates: Sequence[float]) -> None:
        """rates[i], per second, holds from edges_s[i] (the first is 0) to the next edge, the last one for ever.

        From right to left, every stretch is joined with what follows while that raises its ratio: what results is the
        best horizon from each edge, and the stretches behind it have ever lower ratios.
        """
        n = len(rates)
        self.edges_s = edges_s
        self.rates = [rate if rate > LEAST_RATE else LEAST_RATE for rate in rates]
        last = self.rates[-1]
        self._index = [last] * n
        self._gain = [1.0] * n
        self._cost = [1.0 / last] * n
        self._left = [0.0] * n
        self._next = [n] * n
        for at in range(n - 2, -1, -1):
            self._join(at, *self._until(at, edges_s[at + 1] - edges_s[at]))

    def _until(self, at: int, seconds: float) -> tuple[float, float, float]:
        """Of the next seconds inside a stretch: P(ends), expected time, P(does not end)."""
        rate = self.rates[at]
        gain = -expm1(-rate * seconds)
        return gain, gain / rate, 1.0 - gain

    def _join(self, at: int, gain: float, cost: float, left: float) -> None:
        index, following = self._index, at + 1
        n = len(index)
        while following < n and index[following] * cost > gain:
            gain += left * self._gain[following]
            cost += left * self._cost[following]
            left *= self._left[following]
            following = self._next[following]
        index[at] = gain / cost
        self._gain[at], self._cost[at], self._left[at], self._next[at] = gain, cost, left, following

    def index(self, silent_s: float) -> float:
        """What keeping is worth after `silent_s`, per second."""
        index, edges = self._index, self.edges_s
        at = bisect_right(edges, silent_s) - 1
        rate = self.rates[at]
        following = at + 1
        n = len(index)
        if following == n or index[following] <= rate:
            return rate
        left = exp(-rate * (edges[following] - silent_s))
        gain = 1.0 - left
        cost = gain / rate
        while following < n and index[following] * cost > gain:
            gain += left * self._gain[following]
            cost += left * self._cost[following]
            left *= self._left[following]
            following = self._next[following]
        return gain / cost if cost else rate

    def median_s(self, silent_s: float) -> float | None:
        """Seconds from `silent_s` on within which it is as likely to end as not; None for more than a day."""
        wanted = cumulated(self.edges_s, self.rates, silent_s) + log(2.0)
        total = 0.0
        edges = self.edges_s
        for at in range(len(self.rates) - 1):
            width = edges[at + 1] - edges[at]
            if total + self.rates[at] * width >= wanted:
                return edges[at] + (wanted - total) / self.rates[at] - silent_s
            total += self.rates[at] * width
        return None
