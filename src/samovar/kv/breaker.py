"""Keeps requests from waiting for a tier that does not answer. Once several reads in a row ran to their deadline it is
suspended: nothing is offered from it, so what it has counts as a miss at once, and only single blocks are read now and
then to see whether it answers again. The first answer, whatever it says, ends the suspension.
"""

from __future__ import annotations

LATE_IN_A_ROW = 3
PAUSE_S = 10.0
"""Until the first probe. It doubles with each one that is late, since each may take another thread with it, up to:"""
LONGEST_PAUSE_S = 160.0


class Breaker:
    __slots__ = ("_late_in_a_row", "_pause_s", "num_suspensions", "probe_at", "suspended")

    def __init__(self) -> None:
        self._late_in_a_row = 0
        self._pause_s = PAUSE_S
        self.suspended = False
        self.probe_at: float | None = None
        """When a probe is due; None while one is under way, or none is needed."""
        self.num_suspensions = 0

    def probing(self) -> None:
        """A probe begins. It ends by `answered` or `late`."""
        self.probe_at = None

    def answered(self) -> None:
        self._late_in_a_row = 0
        self._pause_s = PAUSE_S
        self.suspended = False
        self.probe_at = None

    def late(self, now: float, *, probe: bool = False) -> None:
        """Nothing came until the deadline. What began before a suspension and ends in it says nothing new."""
        self._late_in_a_row += 1
        if self.suspended and probe:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self.probe_at = now + self._pause_s
        elif not self.suspended and self._late_in_a_row >= LATE_IN_A_ROW:
            self.suspended = True
            self.num_suspensions += 1
            self.probe_at = now + self._pause_s

    def check(self) -> None:
        assert self.suspended or self.probe_at is None, "a tier that answers is probed"
        assert self.suspended or self._late_in_a_row < LATE_IN_A_ROW
        assert PAUSE_S <= self._pause_s <= LONGEST_PAUSE_S
