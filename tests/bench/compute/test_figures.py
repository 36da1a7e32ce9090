"""Shares, ratios, the JSON's form and the tables, from made-up times."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
import math

import pytest
from rich.console import Console, RenderableType

from samovar.bench.compute.bounds import Work
from samovar.bench.compute.figures import as_json, op_figure, step_figure
from samovar.bench.compute.timing import Timing
from samovar.cli.bench_tables import limits_table, op_table, seconds, step_table
from tests.bench.compute.sizes import LIMITS

TIMING = Timing(0.5, 0.4, 5)


def shown(parts: Sequence[RenderableType]) -> str:
    console = Console(file=StringIO(), width=200)
    for part in parts:
        console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_an_op_beside_its_bound() -> None:
    figure = op_figure("linears q8", 4, 0, TIMING, Work(1_000_000_000, {"int8": 1_000_000_000}), LIMITS)
    assert (figure.bound_s, figure.bound_by, figure.share) == (0.1, "bandwidth", pytest.approx(0.2))
    assert figure.gemm_share == pytest.approx(1e9 / 200e9 / 0.5)


def test_what_stays_in_a_cache_has_no_share() -> None:
    figure = op_figure("rope", 4, 0, TIMING, Work(1_000, {}), LIMITS, cached=True)
    assert (figure.bound_by, figure.share, figure.gemm_share) == ("cache", None, None)


def test_a_step_by_each_path() -> None:
    timings = {"mono": TIMING, "normal": Timing(1.0, 0.9, 5)}
    figure = step_figure(8, 1024, timings, Work(1_000_000_000, {}), LIMITS)
    assert figure.paths["mono"].tokens_per_s == 16
    assert figure.paths["normal"].share == pytest.approx(0.1)
    assert figure.ratio("mono", "normal") == 2.0
    assert figure.ratio("mono", "torch") is None


def test_json_and_tables() -> None:
    work = Work(1_000_000_000, {"bf16": 2_000_000_000})
    op = op_figure("linears bf16", 1, 0, TIMING, work, LIMITS)
    step = step_figure(8, 1024, {"mono": TIMING, "torch": Timing(1.0, 0.9, 5)}, work, LIMITS)
    data = as_json(LIMITS, [op])
    assert data["limits"]["peaks"]["int8"] == {"kernels_per_s": 150e9, "torch_per_s": 200e9, "per_s": 200e9}
    assert data["figures"][0]["operations"] == {"bf16": 2_000_000_000}
    assert as_json(LIMITS, [step])["figures"][0]["paths"]["torch"]["tokens_per_s"] == 8.0
    text = shown([limits_table(LIMITS), op_table("ops", [op]), step_table("steps", "rows", [step])])
    for part in ("10.0 GB/s", "200 G/s", "linears bf16", "500.00 ms", "20%", "2.00x", "mono / torch", "bandwidth"):
        assert part in text, part


def test_seconds() -> None:
    assert [seconds(value) for value in (2.0, 0.0123, 4.56e-6)] == ["2.00 s", "12.30 ms", "4.6 us"]
    assert math.isclose(TIMING.median_s, 0.5)
