"""One configuration under one load: simulated, summed up, explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from samovar.sim.explain import verdict
from samovar.sim.outcome import SimRun
from samovar.sim.plan_setup import Hardware, Rules, Setup, kv_tokens, num_replicas, sim_settings
from samovar.sim.report_limits import Explained, explain
from samovar.sim.run import simulate
from samovar.workload.metrics import Point, summarise
from samovar.workload.metrics_cost import Price
from samovar.workload.replay_script import Script

FEW_LANES = 8
"""Fewer lanes make fewer requests a second, so they are watched longer, up to FEW_LANES times."""


@dataclass(frozen=True, slots=True)
class Job:
    setup: Setup
    concurrency: int
    """Lanes of all replicas together."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all trials of a comparison share."""

    hardware: Hardware
    rules: Rules
    """Its concurrency is replaced by each job's."""
    slo: Mapping[str, float] = field(default_factory=dict)
    """As `parse_slo` gives it."""
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    job: Job
    point: Point
    explained: Explained
    why: str
    """What bounds it most, with the figures that show it."""
    kv_tokens: int
    """Of one rank."""
    num_ranks: int
    """That keep KV of their own: data-parallel ranks of all replicas."""
    simulated_s: float
    took_s: float


def watched_s(duration_s: float, concurrency: int) -> float:
    """Seconds to measure, so that few lanes do not mean few requests."""
    return duration_s * min(4.0, max(1.0, FEW_LANES / concurrency))


def run_job(bench: Bench, scripts: Sequence[Script], job: Job, progress: Callable[[float], None]) -> Trial:
    """Raises ConfigError for what does not fit."""
    run = simulate_point(bench.hardware, job.setup, rules_for(bench.rules, job.concurrency), scripts, progress)
    explained = explain(run)
    return Trial(
        job=job,
        point=point_of(bench, job, run),
        explained=explained,
        why=verdict(run, explained),
        kv_tokens=kv_tokens(bench.hardware, job.setup),
        num_ranks=num_replicas(bench.hardware, job.setup.layout) * job.setup.layout.dp,
        simulated_s=run.simulated_s,
        took_s=run.took_s,
    )


def rules_for(rules: Rules, concurrency: int) -> Rules:
    return replace(
        rules,
        replay=replace(rules.replay, concurrency=concurrency),
        duration_s=watched_s(rules.duration_s, concurrency),
    )


def simulate_point(
    hardware: Hardware, setup: Setup, rules: Rules, scripts: Sequence[Script], progress: Callable[[float], None]
) -> SimRun:
    """All engines that the devices are enough for, under one replay."""
    return simulate(sim_settings(hardware, setup, rules), scripts, progress)


def point_of(bench: Bench, job: Job, run: SimRun) -> Point:
    return summarise(
        run.records,
        concurrency=job.concurrency,
        gpus=bench.hardware.gpus,
        price=bench.price,
        slo=dict(bench.slo),
        skipped_s=run.skipped_s,
        sessions_begun=run.sessions_begun,
        sessions_finished=run.sessions_finished,
    )
