"""Least recently used: the baseline every other policy must not lose to."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.retention import Leaf, Outlook, TurnEnd, TurnStart


@dataclass(frozen=True, slots=True)
class LRU:
    """Knows nothing of streams."""

    name: str = "lru"
    sample: int = 1

    def value(self, leaf: Leaf, now: float) -> float:
        return leaf.last_used_s

    def turn_started(self, turn: TurnStart, now: float) -> None:
        pass

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        pass

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        pass

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        return HintAnswer(hint.kind, "ignored", "the retention policy is lru, which takes no hints")

    def outlook(self, stream: str, now: float) -> Outlook:
        return Outlook()
