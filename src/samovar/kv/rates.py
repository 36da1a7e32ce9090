"""How fast a tier is: measured bytes per second of its loads, and what is queued before the next one.

The estimate is an average over the bytes moved lately, so that large loads count for more than small ones, whose time
is mostly overhead. It starts from a configured rate, which counts for less the more is measured, and goes back to it
while nothing is: a tier that was slow once, and is not loaded from for that reason, gets another chance.

An assumed rate may itself be why nothing is loaded and so nothing measured. Then a load of a few milliseconds is worth
its time, whatever the estimate says of it: `probe_blocks`, which `share` offers along.
"""

from __future__ import annotations

from math import inf

from samovar.core.ports import TierShare

_START_BLOCKS = 16
"""What the configured rate weighs against measured blocks. It is out of the sum once as many are."""
_WINDOW_BLOCKS = 1024
"""The average is over about as many."""
_HALF_LIFE_S = 60.0
"""After this long without a load what was measured counts half."""
PROBE_S = 0.02
"""What a probe may take by the present estimate."""
_CLEAR_S = PROBE_S / 5
"""What may come before a probe in the same load: its time is counted as the probe's."""
PROBE_EVERY_S = 30.0
"""A tier from which nothing was loaded for so long is probed: a fifteen-hundredth of the time."""


class Rate:
    __slots__ = (
        "_block_bytes",
        "_bytes",
        "_latest_s",
        "_probes",
        "_queued_bytes",
        "_seconds",
        "_start_bytes",
        "_start_bytes_per_s",
        "_used_s",
        "_window_bytes",
    )

    def __init__(self, start_bytes_per_s: float, block_bytes: int, *, probes: bool = False) -> None:
        """`probes`: the rate is a guess, to be tried out."""
        self._block_bytes = block_bytes
        self._start_bytes_per_s = start_bytes_per_s
        self._start_bytes = float(_START_BLOCKS * block_bytes)
        self._window_bytes = float(_WINDOW_BLOCKS * block_bytes)
        # Sums that fade: their ratio is the measured rate.
        self._bytes = 0.0
        self._seconds = 0.0
        self._latest_s = 0.0
        self._queued_bytes = 0
        self._probes = probes
        self._used_s = -inf
        """When a load from it last began."""

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

    def share(self, tier: str, num_blocks: int, before: TierShare | None, now: float) -> TierShare:
        """What the tier offers of a match, behind what a faster one does. A load is measured as a whole: it says
        little of this tier if much of its time is the other's."""
        seconds = self.estimate_s(num_blocks * self._block_bytes, now)
        clear = before is None or before.seconds <= _CLEAR_S
        return TierShare(tier, num_blocks, seconds, self.probe_blocks(num_blocks, now) if clear else 0)

    def probe_blocks(self, num_blocks: int, now: float) -> int:
        """Of so many: how many to load only to see how long it takes. 0 for none: something was loaded lately, or even
        one block would take long."""
        if not self._probes or now - self._used_s < PROBE_EVERY_S:
            return 0
        spare_s = PROBE_S - self.estimate_s(0, now)
        return min(num_blocks, max(0, int(spare_s / (self._block_bytes * self._seconds_per_byte(self._fade(now))))))

    def queued(self, num_bytes: int, now: float) -> None:
        if num_bytes:
            self._queued_bytes += num_bytes
            self._used_s = now

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
        measured = self._bytes * fade
        assumed = max(0.0, self._start_bytes - measured)
        return (assumed / self._start_bytes_per_s + self._seconds * fade) / (assumed + measured)

    def check(self, queued_bytes: int) -> None:
        assert queued_bytes == self._queued_bytes, "queued bytes differ from the loads under way"
        assert self._bytes >= 0.0 and self._seconds >= 0.0
