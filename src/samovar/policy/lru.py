"""Least recently used: the baseline every other policy must not lose to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from samovar.policy.order_only import OrderOnly
from samovar.policy.retention import Leaf


@dataclass(frozen=True, slots=True)
class LRU(OrderOnly):
    """Knows nothing of streams."""

    why_no_hints: ClassVar[str] = "the retention policy is lru, which takes no hints"
    name: str = "lru"
    sample: int = 1

    def value(self, leaf: Leaf, now: float) -> float:
        return leaf.last_used_s
