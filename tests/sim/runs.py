"""Settings, scripts and step models for runs small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from samovar.core.config import EngineConfig
from samovar.policy.lru import LRU
from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import StepCost
from samovar.sim.outcome import SimRun
from samovar.sim.run import simulate
from samovar.sim.settings import SimSettings
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script, script_of
from samovar.workload.session import SessionTree, Stream, Turn
from tests.workload.replay_trees import BLOCK


class Steps:
    """As long as the slowest rank's, by a formula over one shape."""

    def __init__(self, seconds: Callable[[StepShape], float]) -> None:
        self._seconds = seconds

    def step_s(self, shapes: Sequence[StepShape]) -> StepCost:
        times = [self._seconds(shape) for shape in shapes]
        longest = max(times)
        return StepCost(longest, measured_s=longest, slowest_rank=times.index(longest), path="measured")


def two_times(prefill_s: float, decode_s: float) -> Steps:
    """Steps with a prompt, and steps without."""
    return Steps(lambda shape: prefill_s if shape.chunks else decode_s)


def lone_call(name: str, tokens: int, output: int, *, start_s: float = 0.0) -> Script:
    """A session of one call, whose prompt nobody shares."""
    blocks = np.arange(1, tokens // BLOCK + 1, dtype=np.int64)
    call = Turn(start_s, start_s + 1.0, tokens, output, blocks)
    return script_of(SessionTree(name, BLOCK, (Stream("main", "main", (call,)),), name))


def engine(**fields) -> EngineConfig:
    return EngineConfig(
        **{"num_blocks": 4096, "block_tokens": 64, "max_num_seqs": 16, "max_model_len": 65_536, "depth": 1} | fields
    )


def run(scripts: Sequence[Script], steps: Steps, config: EngineConfig | None = None, **fields) -> SimRun:
    """One visit of every script, all lanes from the first call on."""
    lanes = fields.pop("concurrency", len(scripts))
    visits = fields.pop("visits", len(scripts))
    rules = {"start_from": 0.0, "start_to": 0.0, "max_visits": visits} | fields.pop("rules", {})
    settings = SimSettings(
        steps=steps,
        engine=config or engine(),
        replay=ReplayConfig(concurrency=lanes, **rules),
        duration_s=fields.pop("duration_s", 1e6),
        policy=fields.pop("policy", lambda config: LRU()),
        **fields,
    )
    return simulate(settings, scripts, lambda share: None)
