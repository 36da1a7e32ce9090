"""What a tier below the device looks like from outside."""

from __future__ import annotations

from samovar.core.stats import TierReport
from samovar.kv.rates import Rate
from samovar.kv.tier import Tier


def tier_report(tier: Tier, block_bytes: int, rate: Rate, physical_bytes: int) -> TierReport:
    """`rate`: of loads from it. `physical_bytes`: estimated; who can measure replaces it."""
    return TierReport(
        tier.name,
        num_blocks=tier.pool.num_blocks,
        num_used_blocks=tier.num_used,
        block_bytes=block_bytes,
        physical_bytes=physical_bytes,
        capacity_bytes=tier.pool.num_blocks * block_bytes,
        stored_blocks=tier.stored_blocks,
        promoted_blocks=tier.promoted_blocks,
        recovered_blocks=tier.recovered_blocks,
        loaded_blocks=tier.loaded_blocks,
        evicted_blocks=tier.index.num_evicted,
        forgotten_blocks=tier.forgotten_blocks,
        failed={reason: count for reason, count in sorted(tier.failed.items()) if count},
        bytes_per_s=rate.measured_bytes_per_s,
    )
