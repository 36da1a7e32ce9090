"""Small runs with more conversations than the device holds."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.core.config import EngineConfig
from samovar.kv.settings import TierSettings as Wanted
from samovar.kv.settings import tiers_of
from samovar.policy.lru import LRU
from samovar.sim.cost.fitted import FittedModel, StepCoefficients
from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import StepCost
from samovar.sim.outcome import SimRun
from samovar.sim.run import simulate
from samovar.sim.settings import SimSettings
from samovar.sim.tiers import TierSettings
from samovar.spec.link import Link
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script, script_of
from tests.workload.replay_trees import BLOCK, main_stream, tree, turn

BLOCK_BYTES = 1e6
HOST = Link("host", "test", 2e9, 1e9, 1e-4)
SSD = Link("ssd", "test", 5e8, 2.5e8, 1e-3)
FIRST_BLOCKS, NEW_BLOCKS = 100, 5
STEPS = FittedModel(StepCoefficients(0.005, 0.0005, 0.0, 0.0005, 0.0))
"""2000 tokens of a prompt per second: a block takes 32 ms to compute, 0.5 ms to load from memory, 2 ms from disk."""


class SlowestRank:
    """A `StepModel` of any number of ranks."""

    def step_s(self, shapes: Sequence[StepShape]) -> StepCost:
        return max((STEPS.step_s([shape]) for shape in shapes), key=lambda cost: cost.total_s)


def conversations(count: int, turns: int, gap_s: float = 5.0, output: int = 20) -> list[Script]:
    """Each turn adds NEW_BLOCKS to the FIRST_BLOCKS of the first one."""
    scripts = []
    for number in range(count):
        made = []
        at = float(number)
        for k in range(turns):
            ids = list(range(1000 * number, 1000 * number + FIRST_BLOCKS + NEW_BLOCKS * k))
            made.append(turn(at, at + 1.0, ids, out=output))
            at += 1.0 + gap_s
        scripts.append(script_of(tree(main_stream(*made), name=f"t{number}")))
    return scripts


def tiers(wanted: Wanted | None = None, **changes: object) -> TierSettings:
    found = wanted if wanted is not None else tiers_of(offloading_size="2000MB")
    assert found is not None
    fields = {"host": HOST, "ssd": SSD, "block_bytes": BLOCK_BYTES, "kept_bytes": BLOCK_BYTES, **changes}
    return TierSettings(found, **fields)  # type: ignore[arg-type]


def settings(num_blocks: int = 450, lanes: int = 8, kv_verify: int = 0, **changes: object) -> SimSettings:
    engine = EngineConfig(
        num_blocks=num_blocks,
        block_tokens=BLOCK,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        max_model_len=num_blocks * BLOCK,
        kv_verify=kv_verify,
    )
    replay = ReplayConfig(concurrency=lanes, start_from=0.0, start_to=0.0, max_visits=lanes)
    fields = {"ranks": 1, "duration_s": 10_000.0, "policy": lambda config: LRU(), **changes}
    return SimSettings(steps=SlowestRank(), engine=engine, replay=replay, **fields)  # type: ignore[arg-type]


def run(scripts: list[Script], **changes: object) -> SimRun:
    return simulate(settings(**changes), scripts, lambda share: None)  # type: ignore[arg-type]


def cached_share(found: SimRun) -> float:
    """Of the prompt tokens that an infinite cache would have found."""
    cached = sum(record.cached_tokens or 0 for record in found.records)
    return cached / sum(record.ceiling_tokens or 0 for record in found.records)
