"""How fast requests leave the queue, for the advice when to try again."""

from __future__ import annotations

from collections import deque

MEMORY_S = 60.0
"""Admissions longer ago say nothing of now."""
SHORTEST_S, LONGEST_S = 1.0, 30.0
"""Of the advice. A guess that is too long costs more than a retry that comes too early."""


class Pace:
    """Remembers when the latest requests were admitted."""

    __slots__ = ("_admitted",)

    def __init__(self) -> None:
        self._admitted: deque[float] = deque(maxlen=32)

    def admitted(self, now: float) -> None:
        self._admitted.append(now)

    def wait_s(self, queued: int, now: float) -> float:
        """About how long until `queued` requests are admitted, at the pace of the last minute."""
        recent = [at for at in self._admitted if at > now - MEMORY_S]
        if not recent:
            return SHORTEST_S
        each = (now - recent[0]) / len(recent)
        return round(min(max(queued * each, SHORTEST_S), LONGEST_S), 1)
