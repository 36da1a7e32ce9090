"""Least recently used: the baseline every other policy must not lose to."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.policy.retention import Leaf


@dataclass(frozen=True, slots=True)
class LRU:
    name: str = "lru"
    sample: int = 1

    def value(self, leaf: Leaf, now: float) -> float:
        return leaf.last_used_s
