"""Keeps every stream for a time after its last use, then gives it up.

Before that time is over streams go least recently used first, those of which nobody said how long to keep them before
those of which somebody did.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.retention import EXPIRED, Leaf, Outlook, TurnEnd, TurnStart

DEFAULT_TTL_S = 300.0
MAX_STREAMS = 16_384
SAMPLE = 16
_ASKED_FOR = 1e10
"""Added to the value of leaves that somebody asked to keep: more than any clock shows in seconds."""
_SUPERSEDED = -1e18


@dataclass(slots=True)
class _Asked:
    ttl_s: float
    until_s: float


class TTL:
    """Bounded: of streams hinted longest ago it is forgotten that they were."""

    def __init__(self, ttl_s: float = DEFAULT_TTL_S, *, max_streams: int = MAX_STREAMS) -> None:
        self._ttl_s = ttl_s
        self._max_streams = max_streams
        self._asked: OrderedDict[str, _Asked] = OrderedDict()

    @property
    def name(self) -> str:
        return "ttl"

    @property
    def sample(self) -> int:
        return SAMPLE

    def value(self, leaf: Leaf, now: float) -> float:
        asked = self._asked.get(leaf.stream)
        until_s = leaf.last_used_s + self._ttl_s if asked is None else asked.until_s
        if now > until_s:
            return EXPIRED
        if leaf.superseded:
            return _SUPERSEDED
        return leaf.last_used_s + (_ASKED_FOR if asked is not None else 0.0)

    def turn_started(self, turn: TurnStart, now: float) -> None:
        self._asked.pop(turn.stream, None)  # what was asked held until now

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        asked = self._asked.get(turn.stream)
        if asked is not None and asked.ttl_s > 0.0:  # said while the turn ran
            asked.until_s = now + asked.ttl_s

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        pass

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        if hint.kind not in ("retain", "release"):
            return HintAnswer(hint.kind, "ignored", "the retention policy is ttl, which takes retain and release only")
        if not hint.seconds >= 0.0:
            return HintAnswer(hint.kind, "ignored", f"seconds is {hint.seconds}; it must be at least 0")
        if stream:
            released = hint.kind == "release"
            ttl_s = 0.0 if released else hint.seconds
            self._asked[stream] = _Asked(ttl_s, EXPIRED if released else now + ttl_s)
            self._asked.move_to_end(stream)
            if len(self._asked) > self._max_streams:
                self._asked.popitem(last=False)
        return HintAnswer(hint.kind, "applied")

    def outlook(self, stream: str, now: float) -> Outlook:
        asked = self._asked.get(stream)
        if asked is None:
            return Outlook(why=f"kept for {self._ttl_s:.0f} s after its last use")
        if asked.ttl_s <= 0.0:
            return Outlook(why="closed")
        over = "" if now <= asked.until_s else ", which are over"
        return Outlook(until_s=asked.until_s, why=f"asked to be kept for {asked.ttl_s:.0f} s{over}")
