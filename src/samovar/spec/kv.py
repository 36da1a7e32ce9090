"""KV groups: layers that keep their cache in the same way share one block table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class KVGroup:
    """One block table per request. `block_tokens` is what one block covers across all DCP ranks."""

    kind: Literal["full", "window", "state"]
    block_tokens: int
    block_bytes: int
    """Bytes of one block over all layers of the group, on one rank."""
    window_tokens: int | None = None
