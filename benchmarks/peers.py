"""Compares servers over HTTP, in turn: `python -m benchmarks.peers SERVERS.toml`. `peers.md` says how to set them up.

In every repetition each server is started, warmed up, put under all scenarios and stopped before the next one begins,
so that slow changes of the machine hit all alike; the order is rotated from one repetition to the next.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
import hashlib
import math
from pathlib import Path
from statistics import median
import sys
import tempfile
from typing import Any

from benchmarks.peer_scenarios import SCENARIOS, Figures, run_scenario, warm_up
from benchmarks.peer_servers import Running, Server, SetupError, read_servers
import httpx
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from samovar.base.errors import SamovarError
from samovar.workload.result import bench_result, write_result

SHOWN = {
    "single512": ("stream_tokens_per_s", "ttft_ms", "longest_gap_ms"),
    "deep4096": ("stream_tokens_per_s", "ttft_ms", "longest_gap_ms"),
    "conc8": ("output_tokens_per_s", "stream_tokens_per_s", "ttft_ms", "longest_gap_ms"),
    "agent": ("wall_s", "later_turn_ttft_ms", "first_turn_ttft_ms", "stream_tokens_per_s", "computed_prompt_tokens"),
}
HIGHER_IS_BETTER = ("output_tokens_per_s", "stream_tokens_per_s")
WIDTH = 140

Measured = dict[str, dict[str, list[Figures]]]
"""Per scenario and server the figures of each repetition."""


def main() -> int:
    options = _parser().parse_args()
    try:
        servers = _chosen(read_servers(options.servers), options.only)
        measured = asyncio.run(compare(servers, options))
        result = summary(measured, [server.name for server in servers])
        console = Console(width=WIDTH)
        for scenario in measured:
            console.print(table_of(scenario, result[scenario], options.reps))
        if options.json is not None:
            write_result(_result(servers, options, measured, result), options.json)
    except (SetupError, SamovarError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = sum(run["errors"] for by in measured.values() for runs in by.values() for run in runs)
    if failed:
        print(f"{failed:.0f} requests failed; they are left out of the figures", file=sys.stderr)
    return int(failed > 0)


async def compare(servers: Sequence[Server], options: argparse.Namespace) -> Measured:
    measured: Measured = {name: {server.name: [] for server in servers} for name in options.scenarios}
    kept: dict[str, Running] = {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        logs = options.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        async with httpx.AsyncClient(timeout=options.timeout_s, limits=limits) as client:
            try:
                for repetition in range(options.reps):
                    for server in rotated(servers, repetition):
                        running = kept.pop(server.name, None) or await Running.start(
                            server, client, logs / f"{server.name}.log"
                        )
                        kept[server.name] = running
                        running.resume()
                        await _measure(client, server, repetition, options, measured)
                        if options.keep:
                            running.pause()
                        else:
                            kept.pop(server.name).stop()
            finally:
                for running in kept.values():
                    running.stop()
    return measured


async def _measure(
    client: httpx.AsyncClient, server: Server, repetition: int, options: argparse.Namespace, measured: Measured
) -> None:
    try:
        await warm_up(client, server.endpoint, seed_of(options.seed, repetition, "warm-up"))
    except RuntimeError as error:
        raise SetupError(f"{server.name}: {error}") from error
    for name in options.scenarios:
        seed = seed_of(options.seed, repetition, name)
        figures = await run_scenario(client, server.endpoint, SCENARIOS[name], seed)
        measured[name][server.name].append(figures)
        shown = ", ".join(f"{key} {figures[key]:.1f}" for key in SHOWN[name])
        print(f"{repetition + 1}/{options.reps} {server.name} {name}: {shown}", file=sys.stderr, flush=True)


def rotated(servers: Sequence[Server], by: int) -> list[Server]:
    by %= len(servers)
    return [*servers[by:], *servers[:by]]


def seed_of(*parts: object) -> int:
    """The same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little")


def summary(measured: Measured, names: Sequence[str]) -> dict[str, dict[str, dict[str, Figures]]]:
    """Per scenario and server: medians over repetitions, and how many times better the first server is in each."""
    out: dict[str, dict[str, dict[str, Figures]]] = {}
    for scenario, by_server in measured.items():
        medians = {name: _medians(by_server[name]) for name in names}
        first = medians[names[0]]
        out[scenario] = {
            name: {"median": own, "first_is_better": {key: better(key, first[key], own[key]) for key in own}}
            for name, own in medians.items()
        }
    return out


def _medians(runs: Sequence[Figures]) -> Figures:
    return {key: median(run[key] for run in runs) for key in runs[0]}


def better(figure: str, first: float, other: float) -> float:
    """How many times better the first is: twice the rate, or half the time, is 2."""
    above, below = (first, other) if figure in HIGHER_IS_BETTER else (other, first)
    return above / below if below else math.nan


def table_of(scenario: str, result: Mapping[str, Mapping[str, Figures]], reps: int) -> Table:
    first = next(iter(result))
    table = Table(title=f"{scenario}, median of {reps} (x: how many times better {first} is)", box=SIMPLE_HEAD)
    table.add_column("server")
    for figure in SHOWN[scenario]:
        table.add_column(figure, justify="right")
    for name, own in result.items():
        cells = []
        for figure in SHOWN[scenario]:
            ratio = "" if name == first else f"  {own['first_is_better'][figure]:.2f}x"
            cells.append(f"{own['median'][figure]:,.1f}{ratio}")
        table.add_row(name, *cells)
    return table


def _result(servers: Sequence[Server], options: argparse.Namespace, measured: Measured, result: Any) -> Any:
    """Commands hold paths of one machine: a server's `note` says what it was."""
    shown = [{"name": one.name, "api": one.api, "note": one.note} for one in servers]
    config = {
        "servers": shown,
        "scenarios": {name: asdict(SCENARIOS[name]) for name in options.scenarios},
        "kept_stopped": options.keep,
    }
    figures = {"summary": result, "runs": measured}
    return bench_result("peers", config, figures, seed=options.seed, repeats=options.reps)


def _chosen(servers: list[Server], only: str | None) -> list[Server]:
    """In the order asked for: the first is the one that others are compared with."""
    if only is None:
        return servers
    by_name = {server.name: server for server in servers}
    names = only.split(",")
    wrong = [name for name in names if name not in by_name]
    if wrong:
        raise SetupError(f"--only {only}: there is no server {wrong[0]}, only {', '.join(by_name)}")
    return [by_name[name] for name in names]


def _scenarios(text: str) -> list[str]:
    names = text.split(",")
    wrong = [name for name in names if name not in SCENARIOS]
    if wrong:
        raise argparse.ArgumentTypeError(f"no scenario {wrong[0]!r}, only {', '.join(SCENARIOS)}")
    return names


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("servers", type=Path, help="TOML file with a [[server]] for each")
    parser.add_argument("--only", help="names from the file, the one to compare with first: samovar,vllm")
    parser.add_argument("--scenarios", type=_scenarios, default=list(SCENARIOS), help=", ".join(SCENARIOS))
    parser.add_argument("--reps", type=_at_least_one, default=5, help="repetitions (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument(
        "--keep", action="store_true", help="start every server once; it is stopped (SIGSTOP) while others run"
    )
    parser.add_argument("--timeout-s", type=float, default=600.0, help="of one request (600)")
    parser.add_argument("--logs", type=Path, help="keep the servers' logs in this folder")
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
