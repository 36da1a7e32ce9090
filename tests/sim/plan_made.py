"""Points and trials by hand, and a runner that computes them by a formula instead of simulating."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from samovar.sim.cost.layout import Layout
from samovar.sim.outcome import TurnTiming
from samovar.sim.plan_setup import Hardware, Setup
from samovar.sim.plan_trial import Job, Trial
from samovar.sim.report_limits import Explained
from samovar.spec.catalog import load_device, load_model
from samovar.workload.metrics import Point, Spread


def hardware(model: str = "kimi-k2.6", device: str = "B200", gpus: int = 8) -> Hardware:
    return Hardware(load_model(model), load_device(device), gpus)


def setup(**fields: Any) -> Setup:
    return Setup(**{"layout": Layout(tp=8), "max_model_len": 100_000, "retention_policy": "lru", **fields})


def spread(p90: float | None) -> Spread:
    return Spread(count=0 if p90 is None else 10, mean=p90, p50=p90, p90=p90, p99=p90)


def point(rate: float, interactivity: float | None = 50.0, **fields: Any) -> Point:
    ttft = fields.pop("ttft_s", 1.0)
    values: dict[str, Any] = {
        "concurrency": 1, "complete": True, "window_s": 100.0, "issued": 10, "ok": 10, "failed": 0, "cut": 0,
        "errors": {}, "ttft_s": spread(ttft), "itl_s": spread(None), "full_itl_s": spread(None),
        "latency_s": spread(None), "e2e_per_token_s": spread(None), "p90_interactivity": interactivity,
        "p90_interactivity_last_token": interactivity, "p90_e2e_interactivity": interactivity,
        "mean_e2e_interactivity": interactivity, "p90_interactivity_all": interactivity, "gpus": 8,
        "tokens_per_gpu_s": rate, "computed_per_gpu_s": 0.0, "cached_per_gpu_s": 0.0, "generated_per_gpu_s": 0.0,
        "prompt_tokens": 1000, "cached_tokens": 900, "output_tokens": 10, "hit_rate": 0.9, "hit_ceiling": 0.95,
        "prompt_drift": 0.0, "short_answers": 0, "slo": {}, "slo_met": 0, "goodput_per_s": 0.0, "lag_s": spread(None),
    }  # fmt: skip
    return Point(**{**values, **fields})


def explained(**causes: float) -> Explained:
    return Explained(10, TurnTiming(decode_s=1.0), causes or {"bandwidth": 1.0}, 0.5, 0.2, 0.0, 0.1)


def trial(rate: float, interactivity: float | None = 50.0, *, load: int = 1, of: Setup | None = None,
          **fields: Any) -> Trial:  # fmt: skip
    job = Job(of or setup(), load)
    return Trial(
        job, point(rate, interactivity, concurrency=load, **fields), explained(), "made", 1_000_000, 1, 100.0, 1.0
    )


@dataclass
class FormulaRunner:
    """`rate(job)` -> tokens per second and GPU, P90 interactivity."""

    rate: Callable[[Job], tuple[float, float]]
    turns: Callable[[Job], Explained] = lambda job: explained()
    ran: list[Job] = field(default_factory=list)

    def run(self, jobs: Iterable[Job], progress: Callable[[float, Trial | None], None]) -> list[Trial]:
        found = []
        for number, job in enumerate(jobs, 1):
            self.ran.append(job)
            rate, interactivity = self.rate(job)
            made = trial(rate, interactivity, load=job.concurrency, of=job.setup)
            found.append(replace(made, explained=self.turns(job)))
            progress(number, found[-1])
        return found
