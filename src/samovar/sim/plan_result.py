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
from samovar.sim.plan_trial import Bench, Job, Trial
from samovar.sim.plan_unfinished import Unfinished
from samovar.workload.result import BenchResult, bench_result


def plan_result(
    bench: Bench, plan: Plan, refused: Sequence[Refused], load: Mapping[str, Any], flags: Mapping[str, str]
) -> BenchResult:
    """`load`: where the sessions come from. `flags`: of the recommended configuration, by program."""
    numbers = {trial.job: at for at, trial in enumerate(plan.trials)}
    return bench_result(
        "plan",
        _config(bench, [ladder.concurrency for ladder in plan.ladders], load),
        {
            "complete": True,
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
            "trials": [_trial(bench.hardware, trial) for trial in plan.trials],
        },
        seed=bench.rules.replay.seed,
    )


def unfinished_result(bench: Bench, part: Unfinished, loads: Sequence[int], load: Mapping[str, Any]) -> BenchResult:
    numbers = {trial.job: at for at, trial in enumerate(part.trials)}
    return bench_result(
        "plan",
        _config(bench, loads, load),
        {
            "complete": False,
            "stopped": part.told,
            "planned": part.planned,
            "frontier": [numbers[trial.job] for trial in part.frontier],
            "best": [numbers[trial.job] for trial in part.best],
            "trials": [_trial(bench.hardware, trial) for trial in part.trials],
        },
        seed=bench.rules.replay.seed,
    )


def _config(bench: Bench, loads: Sequence[int], load: Mapping[str, Any]) -> dict[str, Any]:
    hardware, rules = bench.hardware, asdict(bench.rules)
    replay = rules.pop("replay")
    del replay["concurrency"], replay["seed"]
    return {
        "model": hardware.model.name,
        "device": hardware.device.name,
        "gpus": hardware.gpus,
        "steps": "cost model" if hardware.measured is None else "measured",
        "traces": dict(load),
        "concurrency": list(loads),
        "rules": {**replay, **rules},
        "slo": dict(bench.slo),
        "price": None if bench.price is None else msgspec.to_builtins(bench.price),
    }


def _tried(one: Tried, numbers: Mapping[Job, int]) -> dict[str, Any]:
    return {
        "name": one.name,
        "axis": one.axis,
        "aims": list(one.aims),
        "trial": None if one.trial is None else numbers[one.trial.job],
        "over": None if one.over is None else numbers[one.over.job],
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
