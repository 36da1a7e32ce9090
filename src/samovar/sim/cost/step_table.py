"""Seconds of measured steps over three axes, with linear interpolation: batch, prompt tokens, KV tokens read.

The axes are those in which several engines log their forward passes, per rank: sequences in the step, tokens of prompts
computed in it, tokens of context read. Time is close to linear in each of them between measured points.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from samovar.base.errors import ConfigError
from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import StepCost

AXES = ("batch", "prefill_tokens", "kv_read_tokens")


class StepRow(msgspec.Struct, frozen=True, gc=False):
    """One step of one rank."""

    batch: int
    prefill_tokens: int
    kv_read_tokens: int
    seconds: float


class StepTable(msgspec.Struct, frozen=True):
    """`values[(i * len(knots[1]) + j) * len(knots[2]) + k]` is the time at knots[0][i], knots[1][j], knots[2][k]."""

    knots: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
    values: tuple[float, ...]

    @property
    def reach(self) -> tuple[float, float, float]:
        """The last knot of each axis."""
        batch, prefill, kv = self.knots
        return batch[-1], prefill[-1], kv[-1]

    def seconds(self, batch: float, prefill_tokens: float, kv_read_tokens: float) -> float:
        """Beyond the last knot of an axis the last slope goes on, but never downwards; before the first, its value."""
        inside = self._at(batch, prefill_tokens, kv_read_tokens, 1.0)
        found = self._at(batch, prefill_tokens, kv_read_tokens, float("inf"))
        return found if found > inside else inside

    def _at(self, batch: float, prefill_tokens: float, kv_read_tokens: float, most: float) -> float:
        corners = [(0, 1.0)]
        for knots, value in zip(self.knots, (batch, prefill_tokens, kv_read_tokens), strict=True):
            if len(knots) == 1:
                continue
            low = min(max(bisect_right(knots, value) - 1, 0), len(knots) - 2)
            share = (value - knots[low]) / (knots[low + 1] - knots[low])
            share = min(max(share, 0.0), most)
            size = len(knots)
            corners = [
                (at * size + low + side, weight * part)
                for at, weight in corners
                for side, part in ((0, 1.0 - share), (1, share))
            ]
        return sum(self.values[at] * weight for at, weight in corners)


class MeasuredModel:
    """A DP group of `ranks` whose steps were measured: each lasts as long as the slowest rank's."""

    def __init__(self, table: StepTable, ranks: int = 1) -> None:
        self._table = table
        self._ranks = ranks

    def step_s(self, shapes: Sequence[StepShape]) -> StepCost:
        if len(shapes) != self._ranks:
            raise ValueError(f"{len(shapes)} shapes for {self._ranks} ranks")
        times = [self._table.seconds(s.sequences, s.prefill_tokens, s.kv_read_tokens) for s in shapes]
        longest = max(times)
        return StepCost(longest, measured_s=longest, slowest_rank=times.index(longest), path="measured")


def table_of(rows: Sequence[StepRow], where: str) -> StepTable:
    """A table of rows that fill a grid: each combination of their coordinates at least once. Times at one place are
    averaged. Raises ConfigError naming `where` and a gap; `fit_table` takes rows that lie anywhere."""
    knots = tuple(tuple(sorted({float(getattr(row, axis)) for row in rows})) for axis in AXES)
    batch, prefill, kv = knots
    sums: dict[tuple[float, float, float], list[float]] = {}
    for row in rows:
        place = (float(row.batch), float(row.prefill_tokens), float(row.kv_read_tokens))
        sums.setdefault(place, []).append(row.seconds)
    values = []
    for b in batch:
        for p in prefill:
            for k in kv:
                times = sums.get((b, p, k))
                if not times:
                    raise ConfigError(
                        f"{where}: no step with batch {b:g}, prefill_tokens {p:g} and kv_read_tokens {k:g}; a grid"
                        " needs one at every combination"
                    )
                values.append(sum(times) / len(times))
    return StepTable((batch, prefill, kv), tuple(values))
