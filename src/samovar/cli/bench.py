"""`samovar bench`: measurements as commands. Each can write its result with everything needed to repeat it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
import typer

from samovar.base.errors import ConfigError
from samovar.bench.core import CoreBench, run
from samovar.cli.bench_compute import decode, kernels, prefill
from samovar.cli.bench_frontend import frontend
from samovar.cli.bench_kv import kv
from samovar.cli.replay import replay
from samovar.workload.result import bench_result, write_result

app = typer.Typer(help="Measure parts of the system.", no_args_is_help=True)


@app.callback()
def root() -> None:
    pass


app.command()(replay)
app.command()(kernels)
app.command()(decode)
app.command()(prefill)
app.command()(frontend)
app.command()(kv)


@app.command()
def core(
    requests: Annotated[int, typer.Option(help="Decoding requests.")] = 256,
    context: Annotated[int, typer.Option(help="Tokens of context of each.")] = 100_000,
    steps: Annotated[int, typer.Option(help="Steps to measure.")] = 1_000,
    depth: Annotated[int, typer.Option(help="Plans in flight, 1 or 2.")] = 2,
    block_size: Annotated[int, typer.Option(help="Tokens per block.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the random prompts.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """The scheduling core alone: plan + apply per step, and admitting a long prompt that is mostly cached."""
    for name, value in (("--requests", requests), ("--context", context), ("--steps", steps)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    console = Console(stderr=True)
    bench = CoreBench(requests=requests, context=context, steps=steps, depth=depth, block_tokens=block_size, seed=seed)
    with console.status("preparing") as status:
        figures = run(bench, status.update)
    table = Table(title=f"{requests} requests of {context} tokens, depth {depth}, block {block_size}")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_row("plan + apply per step, median", f"{figures.step_median_ms:.2f} ms")
    table.add_row("plan + apply per step, P99", f"{figures.step_p99_ms:.2f} ms")
    table.add_row("largest encoded plan", f"{figures.plan_bytes:,} bytes")
    long = f"{bench.admit_tokens:,} tokens, {figures.admit_found_tokens:,} of them cached"
    table.add_row(f"{long}: hashing", f"{figures.admit_hash_ms:.2f} ms")
    table.add_row("   submitting", f"{figures.admit_submit_ms:.2f} ms")
    table.add_row("   look-up and admission", f"{figures.admit_plan_ms:.2f} ms")
    table.add_row("   together", f"{figures.admit_total_ms:.2f} ms")
    Console().print(table)
    if json is not None:
        write_result(bench_result("core", asdict(bench), asdict(figures), seed=seed, repeats=steps), json)
