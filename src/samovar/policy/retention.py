"""Which cached block goes first when room is needed.

A policy is one object, the same in engine, pool and simulator. It only orders victims: it never refuses an
allocation, so retention is a bias and cannot wedge the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Leaf:
    """A cached block nothing uses and nothing cached depends on: the only kind of block that can be evicted."""

    block: int
    depth_blocks: int
    """Blocks before it in its chain: what a request that wants it has had to match."""
    last_used_s: float
    """When the last request that held it let go."""
    stream: str
    """Tenant and session of that request, "" when it named no session."""


class RetentionPolicy(Protocol):
    """Orders leaves. Values are compared at the time of an eviction, since they may change without an event."""

    @property
    def name(self) -> str: ...

    @property
    def sample(self) -> int:
        """How many leaves, least recently used first, to compare per eviction; 1 when recency alone decides."""
        ...

    def value(self, leaf: Leaf, now: float) -> float:
        """The leaf with the lowest value goes; equal values go least recently used first. Minus infinity says that
        the leaf's time is over, and counts as expired rather than evicted."""
        ...
