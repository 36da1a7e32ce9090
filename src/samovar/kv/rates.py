"""How fast a tier is: measured bytes per second of its loads, and what is queued before the next one.

The estimate is an average over the bytes moved lately, so that large loads count for more than small ones, whose time
is mostly overhead. It starts from a configured rate, and goes back to it while nothing is measured: a tier that was
slow once, and is not loaded from for that reason, gets another chance.
"""

from __future__ import annotations

_START_BLOCKS = 16
"""What the configured rate weighs against measured blocks."""
_WINDOW_BLOCKS = 1024
"""The average is over about as many."""
_HALF_LIFE_S = 60.0
"""After this long without a load what was measured counts half."""


class Rate:
    __slots__ = (
        "_bytes",
        "_latest_s",
        "_queued_bytes",
        "_seconds",
        "_start_bytes",
        "_start_bytes_per_s",
        "_window_bytes",
    )

    def __init__(self, start_bytes_per_s: float, block_bytes: int) -> None:
        self._start_bytes_per_s = start_bytes_per_s
        self._start_bytes = float(_START_BLOCKS * block_bytes)
        self._window_bytes = float(_WINDOW_BLOCKS * block_bytes)
        # Sums that fade: their ratio is the measured rate.
        self._bytes = 0.0
        self._seconds = 0.0
        self._latest_s = 0.0
        self._queued_bytes = 0

    @property
    def bytes_per_s(self) -> float:
        """As it was after the last measurement."""
        return 1.0 / self._seconds_per_byte(1.0)

    @property
    def measured_bytes_per_s(self) -> float:
        """The same without the configured start; 0.0 while nothing is measured."""
        return self._bytes / self._seconds if self._seconds > 0.0 else 0.0

    def estimate_s(self, num_bytes: int, now: float) -> float:
        """Until a load that began now would have ended: what is queued goes first."""
        return (self._queued_bytes + num_bytes) * self._seconds_per_byte(self._fade(now))

    def bare_s(self, num_bytes: int) -> float:
        """Without the queue, by the rate after the last measurement."""
        return num_bytes * self._seconds_per_byte(1.0)

    def queued(self, num_bytes: int) -> None:
        self._queued_bytes += num_bytes

    def done(self, num_bytes: int) -> None:
        """What was `queued` has ended, well or not."""
        self._queued_bytes -= num_bytes

    def measured(self, num_bytes: int, seconds: float, now: float) -> None:
        if num_bytes <= 0 or seconds <= 0.0:
            return
        keep = self._fade(now)
        self._latest_s = max(now, self._latest_s)
        self._bytes = self._bytes * keep + num_bytes
        self._seconds = self._seconds * keep + seconds
        if self._bytes > self._window_bytes:
            self._seconds *= self._window_bytes / self._bytes
            self._bytes = self._window_bytes

    def _fade(self, now: float) -> float:
        return float(0.5 ** (max(0.0, now - self._latest_s) / _HALF_LIFE_S))

    def _seconds_per_byte(self, fade: float) -> float:
        seconds = self._start_bytes / self._start_bytes_per_s + self._seconds * fade
        return seconds / (self._start_bytes + self._bytes * fade)

    def check(self, queued_bytes: int) -> None:
        assert queued_bytes == self._queued_bytes, "queued bytes differ from the loads under way"
        assert self._bytes >= 0.0 and self._seconds >= 0.0
