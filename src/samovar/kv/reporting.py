"""What a tier below the device looks like from outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from samovar.base.ids import BlockKey
from samovar.base.keys import KEY_BYTES, join_keys
from samovar.core.cache_report import Recovered
from samovar.core.stats import TierReport
from samovar.kv.rates import Rate
from samovar.kv.restoring import Record
from samovar.kv.tier import Tier

MOST_RECOVERED_BYTES = 8 << 20
"""Of keys: half a million blocks of conversations, the latest ones."""


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


def recovered_conversations(records: Sequence[Record], lost: Collection[BlockKey], now: float) -> tuple[Recovered, ...]:
    """Who the `records` of a disk were written for, the latest first. They are in the order of writing, so what is last
    of a stream is the end of its last turn. `lost`: of no use, since they are gone or what they follow is."""
    parents: dict[BlockKey, BlockKey] = {}
    ends: dict[str, BlockKey] = {}
    gone = frozenset(lost)
    for key, parent, stream in records:
        if key in gone:
            continue
        parents[key] = parent
        if stream:
            ends.pop(stream, None)  # so that the order is that of their last record
            ends[stream] = key
    found: list[Recovered] = []
    room = MOST_RECOVERED_BYTES // KEY_BYTES
    for stream, end in reversed(ends.items()):
        chain = _chain(parents, end)
        room -= len(chain)
        if room < 0:
            break
        found.append(Recovered(stream, join_keys(chain), now))
    return tuple(found)


def _chain(parents: dict[BlockKey, BlockKey], end: BlockKey) -> list[BlockKey]:
    chain = [end]
    while parent := parents[chain[-1]]:
        chain.append(parent)
    chain.reverse()
    return chain
