"""The simulator against the real engine on this machine: `python -m benchmarks.sim_engine TRACE ...`.

Sessions are replayed against `samovar serve`, scaled to fit the model's context, with gaps so short that the engine
computes most of the time. In each round one run tells what steps and requests cost here, and from it the simulator
predicts the others: other concurrencies, and a cache of another size. Both sides run in turn for `--reps` rounds, so
that slow changes of the machine hit both; medians are compared. Prints a table, writes JSON, and exits with 1 when a
prediction is further off than its band, or the engine idled too much.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
import sys
import tempfile
import time
from typing import Any

from benchmarks.sim_engine_fit import MachineFit, explained, fit_machine, rows_of
from benchmarks.sim_engine_page import DOCS, RESULT, read_result, write_docs
from benchmarks.sim_engine_point import BANDS, Point, figures, medians, predict
from benchmarks.sim_engine_real import RealRun, run_real
import msgspec
from rich.console import Console
from rich.table import Table

from samovar.models.locate import DEFAULT_MODEL
from samovar.workload.reading import read_sessions
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_fit import fit as fit_trees
from samovar.workload.replay_script import Script, script_of
from samovar.workload.result import bench_result, write_result
from samovar.workload.scale import ScaleCounts, divisor, scaled

LEAST_BUSY = 0.7
CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one point."""

    point: Point
    measured: list[dict[str, float]] = field(default_factory=list)
    predicted: list[dict[str, float]] = field(default_factory=list)
    own: list[dict[str, float]] = field(default_factory=list)
    """As predicted from the very run: what is still off is not the machine's, which may be slower than it was."""
    busy: list[float] = field(default_factory=list)
    explained: list[dict[str, float]] = field(default_factory=list)
    """Of the steps that the engine made, what the fit says of them over what they took."""


class Comparison:
    def __init__(self, options: argparse.Namespace, scripts: Sequence[Script], logs: Path, console: Console) -> None:
        self._options = options
        self._scripts = scripts
        self._logs = logs
        self._console = console
        self._runs = 0
        self._began = time.monotonic()

    async def run(self) -> tuple[list[MachineFit], list[Side]]:
        """The fit of every round, and the points; the first one is what it was fitted on."""
        options = self._options
        fitted = Point(options.fit_concurrency, max(options.fit_concurrency, options.sessions), options.blocks)
        points = [Point(lanes, max(lanes, options.sessions), options.blocks) for lanes in options.concurrency]
        points.append(Point(fitted.concurrency, fitted.sessions, options.other_blocks))
        sides = [Side(point) for point in (fitted, *points)]
        machines: list[MachineFit] = []
        sizes: tuple[str, ...] = ()
        for _ in range(options.reps):
            real = await self._real(fitted, sizes)
            # Sizes of steps are measured at a start: the others must not differ.
            sizes = ("--max-num-batched-tokens", str(real.engine.max_num_batched_tokens))
            sizes += ("--max-num-mixed-prefill-tokens", str(real.engine.max_num_mixed_prefill_tokens))
            machines.append(fit_machine(real))
            self._add(sides[0], machines[-1], real)
            for side in sides[1:]:
                self._add(side, machines[-1], await self._real(side.point, sizes))
        return machines, sides

    async def _real(self, point: Point, flags: tuple[str, ...]) -> RealRun:
        options = self._options
        self._runs += 1
        flags += ("--num-gpu-blocks-override", str(point.num_blocks), "--num-threads", str(options.num_threads))
        folder = self._logs / f"run-{self._runs}"
        run = await run_real(self._scripts, self._rules(point), options.port, (options.model, *flags), folder)
        self._console.print(
            f"{time.monotonic() - self._began:5.0f} s: {point.name}: {len(run.records)} requests, {len(run.steps)} "
            f"steps, computed {100 * run.busy_share:.0f} % of the time",
            highlight=False,
            soft_wrap=True,
        )
        return run

    def _add(self, side: Side, machine: MachineFit, real: RealRun) -> None:
        side.measured.append(figures(real.records, side.point.concurrency))
        for fit, found in ((machine, side.predicted), (fit_machine(real), side.own)):
            simulated = predict(fit, real.engine, self._rules(side.point), self._scripts)
            found.append(figures(simulated.records, side.point.concurrency))
        side.busy.append(real.busy_share)
        side.explained.append(explained(rows_of(real), machine.model))

    def _rules(self, point: Point) -> ReplayConfig:
        return ReplayConfig(
            point.concurrency,
            start_from=0.0,
            start_to=0.0,
            time_scale=self._options.time_scale,
            max_visits=point.sessions,
        )


def judged(side: Side) -> dict[str, dict[str, Any]]:
    measured, predicted, own = medians(side.measured), medians(side.predicted), medians(side.own)
    return {
        name: {
            "measured": measured[name],
            "predicted": predicted[name],
            "error": band.error(measured[name], predicted[name]),
            "error_by_its_own_fit": band.error(measured[name], own[name]),
            "band": band.limit,
            "holds": band.holds(measured[name], predicted[name]),
        }
        for name, band in BANDS.items()
    }


def show(console: Console, sides: Sequence[Side]) -> None:
    table = Table(title="the simulator against the engine, medians")
    for name in ("", "figure", "engine", "spread", "simulator", "error", "allowed", "own fit", ""):
        table.add_column(name, justify="left" if name in ("", "figure") else "right")
    for number, side in enumerate(sides):
        first = side.point.name + (" (fitted)" if number == 0 else "")
        for name, found in judged(side).items():
            low, high = (limit(run[name] for run in side.measured) for limit in (min, max))
            percent = "points" if name == "hit_rate" else "%"
            verdict = "" if number == 0 else "holds" if found["holds"] else "MISS"
            table.add_row(
                first, name, f"{found['measured']:.4g}", f"{low:.4g} to {high:.4g}", f"{found['predicted']:.4g}",
                f"{100 * found['error']:+.1f} {percent}", f"{100 * found['band']:.0f} {percent}",
                f"{100 * found['error_by_its_own_fit']:+.1f} {percent}", verdict,
            )  # fmt: skip
            first = ""
    console.print(table)


def result_of(machines: Sequence[MachineFit], sides: Sequence[Side]) -> dict[str, Any]:
    return {
        "fits": [
            {"coefficients": msgspec.to_builtins(one.coefficients), "front_end": asdict(one.front_end)}
            for one in machines
        ],
        "points": [
            {
                "name": side.point.name,
                "fitted": number == 0,
                **asdict(side.point),
                "least_busy_share": min(side.busy),
                "figures": judged(side),
                "measured": side.measured,
                "predicted": side.predicted,
                "predicted_by_its_own_fit": side.own,
                "steps_explained": side.explained,
            }
            for number, side in enumerate(sides)
        ],
    }


def read_scripts(options: argparse.Namespace) -> list[Script]:
    sessions = read_sessions(options.trace, skip_bad=False)
    trees = list(scaled(sessions, divisor(options.scale), ScaleCounts(), "--scale"))
    return [script_of(tree) for tree in fit_trees(trees, min(CONTEXT, 16 * options.other_blocks), "cut").trees]


async def run(options: argparse.Namespace) -> int:
    console = Console(width=max(120, Console().width))
    scripts = read_scripts(options)
    with tempfile.TemporaryDirectory(prefix="samovar-sim-") as folder:
        machines, sides = await Comparison(options, scripts, options.logs or Path(folder), console).run()
    show(console, sides)
    for machine in machines:
        console.print(f"fit: {machine.words}", highlight=False, soft_wrap=True)
    for side in sides:
        shares = medians(side.explained)
        console.print(
            f"{side.point.name}: the fit over measured steps: {_shares(shares)}", highlight=False, soft_wrap=True
        )
    busy = min(min(side.busy) for side in sides)
    console.print(f"computed at least {100 * busy:.0f} % of every run; {100 * LEAST_BUSY:.0f} % are wanted")
    fine = busy >= LEAST_BUSY and all(found["holds"] for side in sides[1:] for found in judged(side).values())
    # By names: where files lie is this machine's affair.
    private = {"json": "", "logs": "", "port": "", "write_docs": "", "trace": [path.name for path in options.trace]}
    config = {key: value for key, value in (vars(options) | private).items() if value != ""}
    config["model"] = Path(options.model).name
    write_result(bench_result("sim_engine", config, result_of(machines, sides), repeats=options.reps), options.json)
    console.print("fine" if fine else "NOT as it should be")
    return 0 if fine else 1


def _shares(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.3f}" for name, share in found.items())


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sim_engine", description=__doc__)
    parser.add_argument("trace", type=Path, nargs="*", help="none: only --write-docs")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--scale", type=float, default=1 / 32, help="of all lengths")
    parser.add_argument("--time-scale", type=float, default=0.01, help="of recorded gaps")
    parser.add_argument("--sessions", type=int, default=2, help="at least, and one per lane")
    parser.add_argument("--fit-concurrency", type=int, default=2)
    parser.add_argument("--concurrency", type=_numbers, default=[1, 4], help="to predict")
    parser.add_argument("--blocks", type=int, default=768)
    parser.add_argument("--other-blocks", type=int, default=320, help="to predict, at the fit's concurrency")
    parser.add_argument("--num-threads", type=int, default=1, help="of the engine; the rest is for server and client")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--port", type=int, default=8391)
    parser.add_argument("--logs", type=Path, help="new folder for the servers' logs (a temporary one)")
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--write-docs", action="store_true", help="the table in docs/simulator.md, from the result")
    options = parser.parse_args()
    code = asyncio.run(run(options)) if options.trace else 0
    if options.write_docs:
        write_docs(read_result(options.json), DOCS)
    return code


if __name__ == "__main__":
    sys.exit(main())
