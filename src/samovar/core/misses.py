"""Why the cache did not cover more of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.base.ids import BlockKey
from samovar.base.keys import KEY_BYTES
from samovar.core.events import Miss
from samovar.core.prefix_index import PrefixIndex
from samovar.core.stream import common_blocks


def explain(reference: bytes, keys: Sequence[BlockKey], hit: int, limit: int, index: PrefixIndex) -> Miss:
    """Why a prompt with `keys`, of which `hit` of at most `limit` blocks were found, missed the next one. `reference`:
    its stream's last turn."""
    if hit >= limit:
        return Miss("none")
    gone = index.evicted.get(keys[hit])
    if gone is not None:
        reason = "expired" if gone.expired else "evicted"
        return Miss(reason, block=hit, at_s=gone.at_s, for_request=gone.for_request)
    if not reference:
        return Miss("cold" if hit == 0 else "new", block=hit)
    same = common_blocks(reference, keys)
    if same > hit:
        # Evicted so long ago that the index forgot when.
        return Miss("evicted", block=hit)
    if hit == same < len(reference) // KEY_BYTES:
        return Miss("cut", block=same)
    return Miss("new", block=hit)
