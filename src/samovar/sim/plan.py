"""A whole plan: the search on several cores, into a folder with a page and the figures.

Finished simulations are in the folder as they come. A plan that is stopped leaves the frontier of those that had ended,
and begun again with the same settings it goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
import shlex
from typing import Any

from samovar.base.errors import SamovarError
from samovar.sim.plan_changes import Menu
from samovar.sim.plan_flags import serve_flags, simulate_flags, vllm_flags, vllm_notes
from samovar.sim.plan_page import plan_page
from samovar.sim.plan_pool import TrialFailed, TrialPool
from samovar.sim.plan_result import plan_result, unfinished_result
from samovar.sim.plan_search import Plan, Progress, Told, search
from samovar.sim.plan_settings import settings_of
from samovar.sim.plan_trial import Bench, Job, Trial, watched_s
from samovar.sim.plan_trials import KeptRunner, TrialFile
from samovar.sim.plan_unfinished import Unfinished, unfinished, unfinished_page
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


@dataclass(frozen=True, slots=True)
class PlanStopped:
    part: Unfinished
    cause: BaseException
    """For the caller to raise."""
    result: BenchResult | None
    """None where nothing had ended: then there is no page either."""


def open_trials(job: PlanJob, output: Path, *, overwrite: bool = False) -> TrialFile:
    """Those of an earlier run with the same settings are in it. Raises ConfigError for a folder that cannot be had."""
    settings = settings_of(job.bench, job.menu, job.loads, job.fitted.trees)
    return TrialFile(output, settings, overwrite=overwrite)


def run_plan(
    job: PlanJob, trials: TrialFile, processes: int, facts: Sequence[str], progress: Progress
) -> PlanFound | PlanStopped:
    """Into the folder of `trials`. `facts`: lines about the load, for the page. Raises ConfigError, when not even that
    can be written."""
    output, bench, menu = trials.path.parent, job.bench, job.menu
    for name in DERIVED:  # of a run before, which this one would seem to have left
        (output / name).unlink(missing_ok=True)
    planned, found = 0, dict[Job, Trial]()

    def told(now: Told) -> None:
        nonlocal planned
        planned = now.planned
        progress(now)

    try:
        with TrialPool(bench, job.fitted.trees, processes) as pool:
            kept = KeptRunner(pool, trials)
            found = kept.found
            plan = search(kept, bench.hardware, menu, job.loads, bench.slo, told)
    except (KeyboardInterrupt, SamovarError, TrialFailed) as cause:
        why = "interrupted" if isinstance(cause, KeyboardInterrupt) else "it failed"
        return _stopped(job, output, unfinished(found.values(), planned, bench.slo, why), cause, facts)
    lines = commands(job, plan)
    result = plan_result(bench, plan, menu.refused, job.load, lines)
    write_result(result, output / RESULT)
    write_report(plan_page(bench.hardware, plan, bench.slo, menu.refused, facts, lines), output / PAGE)
    return PlanFound(plan, lines, result)


def _stopped(job: PlanJob, output: Path, part: Unfinished, cause: BaseException, facts: Sequence[str]) -> PlanStopped:
    if not part.trials:
        return PlanStopped(part, cause, None)
    result = unfinished_result(job.bench, part, job.loads, job.load)
    write_result(result, output / RESULT)
    write_report(unfinished_page(job.bench.hardware, part, job.bench.slo, facts), output / PAGE)
    return PlanStopped(part, cause, result)


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
