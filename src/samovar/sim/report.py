"""A whole simulation: each concurrency in turn, into the same folder as the benchmark's, with a page that explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from samovar.base.folders import check_unused
from samovar.sim.explain import evidence, slow_turns, verdict
from samovar.sim.layouts import layout_name
from samovar.sim.plan_setup import Setup, engine_config, kv_tokens, tier_sizes
from samovar.sim.plan_trial import Bench, Job, point_of, simulate_point
from samovar.sim.report_limits import explain
from samovar.sim.report_notes import left_notes, step_notes
from samovar.sim.report_page import explained_page
from samovar.sim.report_tables import Simulated
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.replay_fit import Fitted
from samovar.workload.replay_folder import ReplayFolder
from samovar.workload.replay_script import script_of
from samovar.workload.report import write_report
from samovar.workload.result import BenchResult, bench_result

EXPLAINED = "explained.html"

Progress = Callable[[int, float], None]
"""A concurrency, and the share of it that is done."""


@dataclass(frozen=True, slots=True)
class SimulationJob:
    bench: Bench
    setup: Setup
    loads: tuple[int, ...]
    """Concurrencies, in the order to simulate them."""
    fitted: Fitted
    load: Mapping[str, Any]
    """Where the sessions come from, for the result."""
    given: Mapping[str, str | None] = field(default_factory=dict)
    """Model, device and steps as the user named them, for the result."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    result: BenchResult
    parts: tuple[Simulated, ...]


def run_simulation(
    job: SimulationJob, output: Path, progress: Progress, *, overwrite: bool = False
) -> SimulationResult:
    """What was simulated is in `output` after each concurrency. Raises ConfigError."""
    check_unused(output, "--output", overwrite=overwrite)
    scripts = [script_of(tree) for tree in job.fitted.trees]
    parts: list[Simulated] = []
    records: list[RequestRecord] = []
    with ReplayFolder(output, "Simulated replay") as folder:
        result = _result(job, parts)
        folder.finish(result, records)
        for load in job.loads:
            rules = replace(job.bench.rules, replay=replace(job.bench.rules.replay, concurrency=load))
            run = simulate_point(job.bench.hardware, job.setup, rules, scripts, partial(progress, load))
            for record in run.records:
                folder.add(record)
            records += run.records
            parts.append(Simulated(point_of(job.bench, Job(job.setup, load), run), run, explain(run)))
            result = _result(job, parts)
            folder.finish(result, records)
            told = [*facts(job), *beyond(job, parts)]
            write_report(explained_page(parts, f"Simulated: {output.name}", told), output / EXPLAINED)
    return SimulationResult(result, tuple(parts))


def facts(job: SimulationJob) -> list[str]:
    """What is simulated, one line each."""
    hardware, layout = job.bench.hardware, job.setup.layout
    engine = engine_config(hardware, job.setup)
    given = job.setup.num_gpu_blocks_override is not None
    lines = [
        f"{hardware.model.name} on {hardware.gpus} x {hardware.device.name}, {layout_name(hardware, layout)}"
        + (", steps measured" if hardware.measured is not None else ""),
        f"KV of a rank: {kv_tokens(hardware, job.setup):,} tokens ({engine.num_blocks:,} blocks of "
        f"{engine.block_tokens}), {'given' if given else 'worked out from memory'}",
        f"{len(job.fitted.trees)} sessions",
    ]
    if job.fitted.skipped:
        lines[-1] += f", {len(job.fitted.skipped)} skipped as too long"
    if job.fitted.cut:
        lines[-1] += f", {len(job.fitted.cut)} cut ({sum(job.fitted.cut.values())} calls left out)"
    if (sizes := tier_sizes(hardware, job.setup)) is not None:
        host, disk = sum(sizes.host_blocks), sizes.disk_blocks
        whose = "all ranks of a machine" if job.setup.shared_tiers else "a rank"
        lines.append(f"Tiers of {whose}: {host:,} blocks in host memory" + (f", {disk:,} on disk" if disk else ""))
        lines += sizes.warnings
    return lines + step_notes(hardware, layout)


def beyond(job: SimulationJob, parts: Sequence[Simulated]) -> list[str]:
    """Where a run's steps left those that were measured, one line for each concurrency."""
    return [
        f"{line}, at concurrency {part.point.concurrency}"
        for part in parts
        for line in left_notes(job.bench.hardware, job.setup, part.run)
    ]


def _result(job: SimulationJob, parts: list[Simulated]) -> BenchResult:
    rules = asdict(job.bench.rules)
    replay = rules.pop("replay")
    del replay["concurrency"], replay["seed"]
    hardware = job.bench.hardware
    return bench_result(
        "simulate",
        {
            "model": hardware.model.name,
            "device": hardware.device.name,
            "gpus": hardware.gpus,
            "steps": "cost model" if hardware.measured is None else "measured",
            "given": dict(job.given),
            "kv_format": job.setup.layout.kv(hardware.model).name,
            "engine": asdict(job.setup),
            "kv_tokens_of_a_rank": kv_tokens(hardware, job.setup),
            "traces": {
                **job.load,
                "sessions": len(job.fitted.trees),
                "sessions_skipped": list(job.fitted.skipped),
                "sessions_cut": dict(job.fitted.cut),
            },
            "concurrency": list(job.loads),
            "rules": {**replay, **rules},
            "slo": dict(job.bench.slo),
            "price": None if job.bench.price is None else msgspec.to_builtins(job.bench.price),
        },
        {
            "complete": len(parts) == len(job.loads),
            "points": [msgspec.to_builtins(part.point) for part in parts],
            "explained": [_explained(part) for part in parts],
        },
        seed=job.bench.rules.replay.seed,
    )


def _explained(part: Simulated) -> dict[str, Any]:
    run = part.run
    return {
        "concurrency": part.point.concurrency,
        "verdict": verdict(run, part.explained),
        "evidence": [asdict(one) for one in evidence(run, part.explained)],
        "slowest": slow_turns(run).told,
        **asdict(part.explained),
        "steps": asdict(run.steps),
        "links": [asdict(link) for link in run.links],
        "simulated_s": run.simulated_s,
        "took_s": run.took_s,
        "num_steps": run.num_steps,
    }
