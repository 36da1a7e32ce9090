"""Who holds how much KV, sampled at even times."""

from __future__ import annotations

from samovar.core.ports import Connector
from samovar.sim.outcome import MemorySample
from samovar.sim.rank import Rank

NUM_SAMPLES = 240
"""Of a run that lasts as long as it was to."""


def sample_memory(rank: Rank, connector: Connector | None, time_s: float) -> MemorySample:
    rank.catch_up()
    stats = rank.engine.stats()
    tiers = connector.report() if connector is not None else ()
    return MemorySample(
        time_s=time_s,
        rank=rank.number,
        used_blocks=stats.num_blocks - stats.num_free_blocks - stats.num_cached_blocks,
        cached_blocks=stats.num_cached_blocks,
        free_blocks=stats.num_free_blocks,
        tier_bytes={tier.tier: tier.num_used_blocks * tier.block_bytes for tier in tiers},
        running=stats.num_running,
        waiting=stats.num_waiting,
    )
