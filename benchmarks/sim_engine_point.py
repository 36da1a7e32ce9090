"""One point of the comparison: its load and capacity, and the figures of a run on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.sim_engine_fit import MachineFit

from samovar.core.config import EngineConfig
from samovar.policy.choose import choose
from samovar.sim.outcome import SimRun
from samovar.sim.run import simulate
from samovar.sim.settings import SimSettings
from samovar.workload.metrics import summarise
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script

LONGEST_S = 1e6
FORCED = "max_tokens"


@dataclass(frozen=True, slots=True)
class Point:
    concurrency: int
    sessions: int
    num_blocks: int

    @property
    def name(self) -> str:
        return f"{self.concurrency} at once, {self.num_blocks} blocks"


@dataclass(frozen=True, slots=True)
class Band:
    """How near a prediction must be. `share`: of the measured value; otherwise a difference."""

    limit: float
    share: bool

    def error(self, measured: float, predicted: float) -> float:
        return predicted / measured - 1 if self.share else predicted - measured

    def holds(self, measured: float, predicted: float) -> bool:
        return abs(self.error(measured, predicted)) <= self.limit


BANDS: Mapping[str, Band] = {
    "hit_rate": Band(0.01, share=False),
    "p50_ttft_s": Band(0.15, share=True),
    "p50_itl_s": Band(0.15, share=True),
    "makespan_s": Band(0.10, share=True),
}


def figures(records: Sequence[RequestRecord], concurrency: int) -> dict[str, float]:
    """Of a run of which no request failed."""
    point = summarise(records, concurrency=concurrency, gpus=1, price=None, slo={}, complete=True)
    assert point.hit_rate is not None and point.ttft_s.p50 is not None and point.itl_s.p50 is not None
    return {
        "hit_rate": point.hit_rate,
        "p50_ttft_s": point.ttft_s.p50,
        "p50_itl_s": point.itl_s.p50,
        "makespan_s": max(record.end_s for record in records),
        "p90_ttft_s": point.ttft_s.p90 or 0.0,
        "p90_itl_s": point.itl_s.p90 or 0.0,
        "requests": float(len(records)),
    }


def predict(fit: MachineFit, engine: EngineConfig, rules: ReplayConfig, scripts: Sequence[Script]) -> SimRun:
    """`engine`: as the real one was configured when it ran."""
    settings = SimSettings(
        steps=fit.model,
        engine=engine,
        replay=rules,
        duration_s=LONGEST_S,
        policy=lambda config: choose("agent", config.num_blocks),
        front_end=fit.front_end,
    )
    return simulate(settings, [_forced(script) for script in scripts], lambda share: None)


def _forced(script: Script) -> Script:
    """As the real server sees it: every answer ends because its length was given."""
    calls = tuple(replace(call, recorded=replace(call.recorded, stop=FORCED)) for call in script.calls)
    return replace(script, calls=calls)


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}
