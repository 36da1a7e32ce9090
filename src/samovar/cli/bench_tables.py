"""Tables of the compute benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from samovar.bench.compute.bounds import MachineLimits
from samovar.bench.compute.figures import OpFigure, PathFigure, StepFigure


def limits_table(limits: MachineLimits) -> Table:
    table = _table(f"this machine, {limits.isa}, {limits.threads} threads", "what", "measured")
    table.add_row(f"read, {_size(limits.read_array_bytes)}", _rate(limits.read_bytes_per_s))
    table.add_row("the same, one thread", _rate(limits.read_one_thread_bytes_per_s))
    table.add_row(f"read, {_size(limits.read_again_array_bytes)} again and again", _rate(limits.read_again_bytes_per_s))
    for kind, peak in limits.peaks.items():
        table.add_row(f"{kind} products, from registers", _speed(peak.kernels_per_s))
        if peak.torch_per_s is not None:
            table.add_row(f"{kind} matrix product of PyTorch", _speed(peak.torch_per_s))
    return table


def op_table(title: str, figures: Sequence[OpFigure]) -> Table:
    table = _table(
        title, "op", "tokens", "depth", "median", "best", "reads", "computes", "of bound", "bound", "of GEMM"
    )
    for figure in figures:
        table.add_row(
            figure.op,
            str(figure.tokens),
            str(figure.depth),
            seconds(figure.median_s),
            seconds(figure.best_s),
            f"{_size(figure.read_bytes)}, {_rate(figure.read_bytes / figure.median_s)}",
            _speed(sum(figure.operations.values()) / figure.median_s) if figure.operations else "",
            "" if figure.share is None else f"{figure.share:.0%}",
            figure.bound_by,
            "" if figure.gemm_share is None else f"{figure.gemm_share:.0%}",
        )
    return table


def step_table(title: str, tokens: str, figures: Sequence[StepFigure]) -> Table:
    """One row per size; of each path its time, tokens per second and share of the bound, then how many times faster the
    first path is than the others. The title says so to the reader."""
    paths = list(dict.fromkeys(name for figure in figures for name in figure.paths))
    first, *others = paths
    title = f"{title}\nof each path: time, tokens per second, share of the bound"
    table = _table(title, tokens, "depth", *paths, *(f"{first} / {other}" for other in others), "bound")
    for figure in figures:
        ratios = [figure.ratio(first, other) for other in others]
        table.add_row(
            str(figure.tokens),
            str(figure.depth),
            *(_path(figure.paths[name]) for name in paths),
            *("" if ratio is None else f"{ratio:.2f}x" for ratio in ratios),
            f"{seconds(figure.bound_s)} {figure.bound_by}",
        )
    return table


def _path(one: PathFigure) -> str:
    return f"{seconds(one.median_s)}  {one.tokens_per_s:,.0f}/s  {one.share:.0%}"


def seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} us"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _size(num_bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes} B"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.1f} GB/s"


def _speed(operations_per_s: float) -> str:
    return f"{operations_per_s / 1e9:,.0f} G/s"
