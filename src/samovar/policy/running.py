"""What a stream is worth whose turn has not ended: first the turn has to end, in one way or another, then its silence.

The rest of the turn is taken at a few of its quantiles, the silence after it is a mixture of those that follow each way
of ending. Nothing is computed before it is asked for, and everything from what was known when the object was made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp, log

from samovar.policy.silence import EDGES_S, Curve, cumulated

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
HORIZONS_S = (0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1800)
"""Tried after the turn's likely end."""


class Running:
    """Immutable but for what it remembers of its own answers."""

    __slots__ = ("_indices", "_rates", "_silent", "_waited")

    def __init__(self, rates: Sequence[float], silences: Sequence[tuple[float, Curve]]) -> None:
        """`rates`: at which turns end, by the time they have taken, in the bins of EDGES_S. `silences`: share of turns
        and hazard, by how turns end; the shares add up to 1."""
        self._rates = rates
        self._indices: dict[int, float] = {}
        lasting = [_lasting(curve.rates) for _, curve in silences]
        shares = [share for share, _ in silences]
        self._silent = [
            sum(share * left[at] for share, left in zip(shares, lasting, strict=True)) for at in range(len(EDGES_S))
        ]
        """Share of silences that are longer, by edge."""
        self._waited = [0.0]
        """Expected seconds of silence up to each edge."""
        for at in range(1, len(EDGES_S)):
            mean = (self._silent[at - 1] + self._silent[at]) / 2
            self._waited.append(self._waited[-1] + mean * (EDGES_S[at] - EDGES_S[at - 1]))

    def index(self, elapsed_s: float) -> float:
        """As `Curve.index`, after that much of the turn; the same inside a bin."""
        bin_ = bisect_right(EDGES_S, elapsed_s) - 1
        found = self._indices.get(bin_)
        if found is None:
            found = self._indices[bin_] = self._best(self._rest_s(bin_))
        return found

    def _rest_s(self, bin_: int) -> list[float]:
        """How much longer the turn takes, at each quantile."""
        start_s = EDGES_S[bin_]
        before = cumulated(EDGES_S, self._rates, start_s)
        return [_reached(self._rates, before - log(1.0 - share)) - start_s for share in QUANTILES]

    def _best(self, rest_s: list[float]) -> float:
        middle_s = rest_s[len(rest_s) // 2]
        return max(self._ratio(rest_s, middle_s + horizon_s) for horizon_s in HORIZONS_S)

    def _ratio(self, rest_s: list[float], horizon_s: float) -> float:
        """P(the next turn begins within the horizon) / expected seconds until then."""
        silent = waited = 0.0
        for rest in rest_s:
            after_s = horizon_s - rest
            if after_s <= 0.0:
                silent += 1.0
                waited += horizon_s
            else:
                share, seconds = self._after(after_s)
                silent += share
                waited += rest + seconds
        return (len(rest_s) - silent) / waited

    def _after(self, seconds: float) -> tuple[float, float]:
        """Share of silences that are longer, and expected seconds of silence by then."""
        at = bisect_right(EDGES_S, seconds) - 1
        if at + 1 == len(EDGES_S):
            return self._silent[at], self._waited[at] + self._silent[at] * (seconds - EDGES_S[at])
        inside = (seconds - EDGES_S[at]) / (EDGES_S[at + 1] - EDGES_S[at])
        longer = self._silent[at] + inside * (self._silent[at + 1] - self._silent[at])
        return longer, self._waited[at] + (self._silent[at] + longer) / 2 * (seconds - EDGES_S[at])


def _lasting(rates: Sequence[float]) -> list[float]:
    lasting = [1.0]
    for at in range(1, len(EDGES_S)):
        lasting.append(lasting[-1] * exp(-rates[at - 1] * (EDGES_S[at] - EDGES_S[at - 1])))
    return lasting


def _reached(rates: Sequence[float], hazard: float) -> float:
    """When the hazard's integral reaches that much."""
    total = 0.0
    for at in range(len(EDGES_S) - 1):
        more = rates[at] * (EDGES_S[at + 1] - EDGES_S[at])
        if total + more >= hazard:
            return EDGES_S[at] + (hazard - total) / rates[at]
        total += more
    return float(EDGES_S[-1])
