"""A whole plan: the search on several cores, into a folder with a page and the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
import shlex
from typing import Any

from samovar.base.folders import check_unused, make_folder
from samovar.sim.plan_changes import Menu
from samovar.sim.plan_flags import serve_flags, simulate_flags, vllm_flags, vllm_notes
from samovar.sim.plan_page import plan_page
from samovar.sim.plan_pool import TrialPool
from samovar.sim.plan_result import plan_result
from samovar.sim.plan_search import Plan, Progress, search
from samovar.sim.plan_trial import Bench, watched_s
from samovar.workload.replay_fit import Fitted
from samovar.workload.replay_folder import DERIVED
from samovar.workload.report import write_report
from samovar.workload.result import BenchResult, write_result

PAGE, RESULT = "plan.html", "plan.json"


@dataclass(frozen=True, slots=True)
class Named:
    """What the user called things, for command lines that can be pasted."""

    model: str
    device: str
    load: tuple[str, ...]
    """Flags of traces, rules and figures, but for concurrency and duration."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    bench: Bench
    menu: Menu
    loads: tuple[int, ...]
    """Concurrencies, rising."""
    fitted: Fitted
    load: Mapping[str, Any]
    """Where the sessions come from, for the result."""
    named: Named


@dataclass(frozen=True, slots=True)
class PlanFound:
    plan: Plan
    commands: dict[str, str]
    """Of the recommended configuration, by program."""
    result: BenchResult


def run_plan(
    job: PlanJob, output: Path, processes: int, facts: Sequence[str], progress: Progress, *, overwrite: bool = False
) -> PlanFound:
    """`facts`: lines about the load, for the page. Raises ConfigError, for the folder before anything is simulated."""
    check_unused(output, "--output", overwrite=overwrite)
    make_folder(output, "--output")
    for name in DERIVED:  # of a run before, which an interrupted plan would seem to have left
        (output / name).unlink(missing_ok=True)
    bench, menu = job.bench, job.menu
    with TrialPool(bench, job.fitted.trees, processes) as pool:
        plan = search(pool, bench.hardware, menu, job.loads, bench.slo, progress)
    lines = commands(job, plan)
    result = plan_result(bench, plan, menu.refused, job.load, lines)
    write_result(result, output / RESULT)
    write_report(plan_page(bench.hardware, plan, bench.slo, menu.refused, facts, lines), output / PAGE)
    return PlanFound(plan, lines, result)


def commands(job: PlanJob, plan: Plan) -> dict[str, str]:
    hardware, named = job.bench.hardware, job.named
    setup, load = plan.recommended.job.setup, plan.recommended.job.concurrency
    duration_s = watched_s(job.bench.rules.duration_s, load)
    again = ["samovar", "simulate", *named.load, "--concurrency", str(load), "--duration", str(duration_s)]
    again += simulate_flags(hardware, setup, named.model, named.device)
    notes = "; ".join(vllm_notes(hardware, setup))
    return {
        "The same figures again": shlex.join(again),
        "Samovar, one rank of it": shlex.join(["samovar", "serve", *serve_flags(hardware, setup)]),
        f"vLLM{f' ({notes})' if notes else ''}": shlex.join(["vllm", "serve", "MODEL", *vllm_flags(hardware, setup)]),
    }
