"""What the compute benchmarks report. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from samovar.bench.compute.bounds import Kind, MachineLimits, Work, bound, operations_of
from samovar.bench.compute.timing import Timing


@dataclass(frozen=True, slots=True)
class OpFigure:
    """One op at one size; times are of one call, or of one sweep where the name says so."""

    op: str
    tokens: int
    depth: int
    median_s: float
    best_s: float
    read_bytes: int
    operations: dict[Kind, int]
    bound_s: float
    bound_by: str
    """"bandwidth", "compute", or "cache": all of it stays in a cache, where no bound was measured."""
    share: float | None
    """Of the bound, by the median; None in a cache."""
    gemm_share: float | None
    """Of the speed of PyTorch's large matrix product of the same kind; None where it was not measured, or nothing is
    multiplied."""


@dataclass(frozen=True, slots=True)
class PathFigure:
    median_s: float
    best_s: float
    tokens_per_s: float
    share: float
    """Of the bound, by the median."""


@dataclass(frozen=True, slots=True)
class StepFigure:
    """A decode step, or a whole prompt, by each path that was measured."""

    tokens: int
    """Of the step: its rows; of a prompt: its length."""
    depth: int
    read_bytes: int
    operations: dict[Kind, int]
    bound_s: float
    bound_by: str
    paths: dict[str, PathFigure]

    def ratio(self, path: str, to: str) -> float | None:
        """How many times faster `path` is than `to`; None unless both were measured."""
        if path not in self.paths or to not in self.paths:
            return None
        return self.paths[to].median_s / self.paths[path].median_s


def op_figure(
    op: str, tokens: int, depth: int, timing: Timing, work: Work, limits: MachineLimits, *, cached: bool = False
) -> OpFigure:
    least = bound(work, limits)
    return OpFigure(
        op=op,
        tokens=tokens,
        depth=depth,
        median_s=timing.median_s,
        best_s=timing.best_s,
        read_bytes=work.read_bytes,
        operations=operations_of(work),
        bound_s=least.seconds,
        bound_by="cache" if cached else least.by,
        share=None if cached else least.seconds / timing.median_s,
        gemm_share=_gemm_share(work, timing, limits),
    )


def _gemm_share(work: Work, timing: Timing, limits: MachineLimits) -> float | None:
    seconds = 0.0
    for kind, count in operations_of(work).items():
        speed = limits.peaks[kind].torch_per_s
        if speed is None:
            return None
        seconds += count / speed
    return seconds / timing.median_s if seconds else None


def step_figure(tokens: int, depth: int, timings: dict[str, Timing], work: Work, limits: MachineLimits) -> StepFigure:
    least = bound(work, limits)
    paths = {
        name: PathFigure(one.median_s, one.best_s, tokens / one.median_s, least.seconds / one.median_s)
        for name, one in timings.items()
    }
    return StepFigure(tokens, depth, work.read_bytes, operations_of(work), least.seconds, least.by, paths)


def as_json(limits: MachineLimits, figures: list[OpFigure] | list[StepFigure]) -> dict[str, Any]:
    """The `measured` part of a result."""
    data: dict[str, Any] = msgspec.to_builtins({"limits": limits, "figures": figures})
    for kind, peak in limits.peaks.items():
        data["limits"]["peaks"][kind]["per_s"] = peak.per_s
    return data
