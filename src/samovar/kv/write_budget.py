"""How much may be written to the disk: a token bucket, so that a flash drive lasts and other work gets through."""

from __future__ import annotations

from math import inf

_LEAST_WAIT_S = 0.001
"""The clock's rounding must not make a wait of nothing."""


class WriteBudget:
    """`bytes_per_s` None is no limit. What is not used is saved up, to at most `burst_bytes`; it begins full. To look
    changes nothing, so that what it says does not depend on how often it was asked."""

    __slots__ = ("_bytes_per_s", "_left", "_now", "_since", "burst_bytes")

    def __init__(self, bytes_per_s: float | None, burst_bytes: float, block_bytes: int) -> None:
        """`block_bytes`: what is written at once at least; a smaller burst would never allow it."""
        self._bytes_per_s = bytes_per_s
        self.burst_bytes = inf if bytes_per_s is None else float(max(burst_bytes, block_bytes))
        # What was left when something was spent last, at `_since`; it was asked last at `_now`.
        self._left = self.burst_bytes
        self._since = self._now = -inf

    def left_bytes(self, now: float) -> float:
        self._now = max(now, self._now)
        if self._bytes_per_s is None or self._since == -inf:
            return self._left
        return min(self.burst_bytes, self._left + (self._now - self._since) * self._bytes_per_s)

    def lift(self) -> None:
        """No limit from now on."""
        self._bytes_per_s, self._left, self.burst_bytes = None, inf, inf

    def spend(self, num_bytes: int) -> None:
        """At the time it was asked last."""
        left = self.left_bytes(self._now)
        assert num_bytes <= left
        self._left, self._since = left - num_bytes, self._now

    def when(self, num_bytes: float, now: float) -> float:
        """From when on so much (at most a burst) may be written, if nothing is spent before."""
        missing = min(num_bytes, self.burst_bytes) - self.left_bytes(now)
        if self._bytes_per_s is None or missing <= 0.0:
            return now
        return now + max(_LEAST_WAIT_S, missing / self._bytes_per_s)
