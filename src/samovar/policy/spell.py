"""One silence of one stream: under which evidence it stands, what of it has been counted, and what it is worth."""

from __future__ import annotations

from bisect import bisect_right

from samovar.policy.hazard import LONGEST_S, Signs
from samovar.policy.silence import EDGES_S, Curve, cumulated
from samovar.policy.trust import Told

_ALL_BINS = tuple(range(len(EDGES_S)))


class Spell:
    """From `began_s` on. The curve is that of the moment when it was made: later learning reaches it with `refresh`, so
    that looking at it never changes anything."""

    __slots__ = ("_bins", "_counted_s", "_told_bins", "_usual", "began_s", "curve", "signs", "told")

    def __init__(self, began_s: float, signs: Signs, told: tuple[Told, ...] = ()) -> None:
        self.began_s = began_s
        self.signs = signs
        self.told = told
        self._counted_s = 0.0
        self.refresh()

    def refresh(self) -> None:
        """Take over what its classes have learned."""
        self._usual = self.signs.usual()
        self._told_bins: list[list[int]] = []
        self._bins: tuple[int, ...] = _ALL_BINS
        self.curve = self._usual.curve
        if self.told:
            self._take_hints()

    def _take_hints(self) -> None:
        """Cut the hazard at the edges of their bins too, and put their factors on it."""
        edges = {*EDGES_S}
        for told in self.told:
            edges.update(edge for edge in told.edges_s(self.began_s) if edge > 0.0)
        cuts = sorted(edges)
        self._bins = tuple([bisect_right(EDGES_S, cut) - 1 for cut in cuts])
        usual = self._usual.curve.rates
        rates = [usual[bin_] for bin_ in self._bins]
        for told in self.told:
            bins = told.bins(self.began_s, cuts)
            self._told_bins.append(bins)
            factors = told.evidence.factors()
            rates = [rate if bin_ < 0 else rate * factors[bin_] for rate, bin_ in zip(rates, bins, strict=True)]
        self.curve = Curve(cuts, rates)

    def judged(self, signs: Signs) -> None:
        """What was not known when it began: all of it counts for these classes."""
        self.signs = signs
        self._counted_s = 0.0
        self.refresh()

    def tell(self, told: tuple[Told, ...], now: float) -> None:
        """From now on it stands under these hints."""
        self.count(now)
        self.told = told
        self.refresh()

    def index(self, now: float) -> float:
        return self.curve.index(max(0.0, now - self.began_s))

    def count(self, now: float) -> None:
        """It still lasted at `now`."""
        until_s = min(now - self.began_s, LONGEST_S)
        edges = self.curve.edges_s
        at = bisect_right(edges, self._counted_s) - 1
        while self._counted_s < until_s:
            end = min(until_s, edges[at + 1]) if at + 1 < len(edges) else until_s
            self._silent(at, end - self._counted_s)
            self._counted_s = end
            at += 1
        self.signs.hazard.counted()

    def _silent(self, at: int, seconds: float) -> None:
        bin_ = self._bins[at]
        self.signs.hazard.silent(bin_, seconds)
        for told, bins in zip(self.told, self._told_bins, strict=True):
            if bins[at] >= 0:
                told.evidence.silent(bins[at], self._usual.curve.rates[bin_] * seconds)

    def ended(self, now: float) -> float:
        """The stream came back at `now`. Returns how many returns its class expected by then."""
        self.count(now)
        silent_s = max(0.0, now - self.began_s)
        at = bisect_right(self.curve.edges_s, silent_s) - 1
        if silent_s <= LONGEST_S:
            self.signs.hazard.came_back(self._bins[at])
            for told, bins in zip(self.told, self._told_bins, strict=True):
                if bins[at] >= 0:
                    told.evidence.came_back(bins[at])
        return cumulated(EDGES_S, self._usual.base, silent_s)
