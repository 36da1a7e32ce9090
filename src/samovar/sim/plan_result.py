"""A plan as JSON: every trial once, ladders and frontier by their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from samovar.sim.layouts import Refused
from samovar.sim.plan_search import Plan, Tried
from samovar.sim.plan_setup import Hardware
from samovar.sim.plan_tables import setup_name
from samovar.sim.plan_trial import Bench, Trial
from samovar.workload.result import BenchResult, bench_result


def plan_result(
    bench: Bench, plan: Plan, refused: Sequence[Refused], load: Mapping[str, Any], flags: Mapping[str, str]
) -> BenchResult:
    """`load`: where the sessions come from. `flags`: of the recommended configuration, by program."""
    numbers = {trial.job: at for at, trial in enumerate(plan.trials)}
    hardware, rules = bench.hardware, asdict(bench.rules)
    replay = rules.pop("replay")
    del replay["concurrency"], replay["seed"]
    return bench_result(
        "plan",
        {
            "model": hardware.model.name,
            "device": hardware.device.name,
            "gpus": hardware.gpus,
            "steps": "cost model" if hardware.measured is None else "measured",
            "traces": dict(load),
            "concurrency": [ladder.concurrency for ladder in plan.ladders],
            "rules": {**replay, **rules},
            "slo": dict(bench.slo),
            "price": None if bench.price is None else msgspec.to_builtins(bench.price),
        },
        {
            "recommended": numbers[plan.recommended.job],
            "meets_slo": plan.meets_slo,
            "flags": dict(flags),
            "frontier": [numbers[trial.job] for trial in plan.frontier],
            "ladders": [
                {
                    "concurrency": ladder.concurrency,
                    "baseline": numbers[ladder.baseline.job],
                    "alone": [_tried(one, numbers) for one in ladder.alone],
                    "together": [_tried(one, numbers) for one in ladder.together],
                    "best": numbers[ladder.best.job],
                }
                for ladder in plan.ladders
            ],
            "refused": [asdict(one) for one in refused],
            "trials": [_trial(hardware, trial) for trial in plan.trials],
        },
        seed=bench.rules.replay.seed,
    )


def _tried(one: Tried, numbers: Mapping[Any, int]) -> dict[str, Any]:
    return {
        "name": one.name,
        "axis": one.axis,
        "trial": None if one.trial is None else numbers[one.trial.job],
        "reason": one.reason,
        "kept": one.kept,
    }


def _trial(hardware: Hardware, trial: Trial) -> dict[str, Any]:
    """Without what the clock of this machine said, so that equal plans are equal files."""
    return {
        "name": setup_name(hardware, trial.job.setup),
        "concurrency": trial.job.concurrency,
        "setup": asdict(trial.job.setup),
        "kv_tokens_of_a_rank": trial.kv_tokens,
        "ranks": trial.num_ranks,
        "simulated_s": trial.simulated_s,
        "point": msgspec.to_builtins(trial.point),
        "verdict": trial.explained.verdict,
        "why": trial.why,
        "explained": asdict(trial.explained),
    }
