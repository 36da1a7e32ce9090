"""One load, store or move under way: which of its blocks have arrived, and when it is over.

Its pieces are moved by several threads. Whoever is about to write where others may look (a device block, a slot, a
seal) does it inside `writing()`; `end` closes that door and waits for those inside. So once a transfer is reported, in
time or late, no thread of it touches what it named, even one that comes back from a read hours later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import threading

from samovar.base.ids import TransferId
from samovar.core.plan import TransferDone

_WAITING, _ARRIVED, _FAILED = 0, 1, 2

LATE = "late"


class Transfer:
    """`in_order`: only a leading part of it counts, so what lies behind the first failure has failed."""

    def __init__(self, transfer_id: TransferId, num_blocks: int, *, in_order: bool, clock: Callable[[], float]) -> None:
        self.id = transfer_id
        self._in_order = in_order
        self._clock = clock
        self._changed = threading.Condition()
        self._blocks = bytearray(num_blocks)
        self._reasons: dict[int, str] = {}
        self._first_failed = num_blocks
        self._pieces_left = 0
        self._writers = 0
        self._ended = False
        self._working = 0
        self._working_since = 0.0
        self._seconds = 0.0

    def expect(self, pieces: int) -> None:
        """How many pieces there are, before the first of them begins."""
        self._pieces_left = pieces

    @property
    def ended(self) -> bool:
        return self._ended

    def wants(self, position: int) -> bool:
        """Whether this block is still to be moved."""
        behind_a_failure = self._in_order and self._first_failed < position
        return not self._ended and not behind_a_failure and self._blocks[position] == _WAITING

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around a piece; what counts as `seconds` is the time when any piece is worked on."""
        with self._changed:
            if self._working == 0:
                self._working_since = self._clock()
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                if self._working == 0:
                    self._seconds += self._clock() - self._working_since

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """False: the transfer is over, write nothing. Only copies of memory belong inside, nothing that can hang."""
        with self._changed:
            may_write = not self._ended
            self._writers += may_write
        try:
            yield may_write
        finally:
            if may_write:
                with self._changed:
                    self._writers -= 1
                    self._changed.notify_all()

    def arrived(self, position: int) -> None:
        """Inside `writing`, or for what is written nowhere that others look."""
        self._blocks[position] = _ARRIVED

    def fail(self, position: int, reason: str) -> None:
        with self._changed:
            self._blocks[position] = _FAILED
            self._reasons.setdefault(position, reason)
            self._first_failed = min(self._first_failed, position)

    def piece_done(self) -> bool:
        """True for the last one."""
        with self._changed:
            self._pieces_left -= 1
            return self._pieces_left == 0

    def end(self) -> TransferDone | None:
        """Closes the door. None when it was closed before: a transfer is reported once. Blocks that have neither
        arrived nor failed by now are late."""
        with self._changed:
            if self._ended:
                return None
            self._ended = True
            self._changed.wait_for(lambda: self._writers == 0)
            failed = self._failed()
            reason = self._reasons.get(failed[0], LATE) if failed else ""
            if self._working:
                self._seconds += self._clock() - self._working_since
            return TransferDone(self.id, failed, reason, self._seconds)

    def _failed(self) -> tuple[int, ...]:
        bad = [position for position, state in enumerate(self._blocks) if state != _ARRIVED]
        if bad and self._in_order:
            return tuple(range(bad[0], len(self._blocks)))
        return tuple(bad)

    def check(self) -> None:
        """Recompute every invariant; for any moment. Raises AssertionError."""
        with self._changed:
            failed = [position for position, state in enumerate(self._blocks) if state == _FAILED]
            assert failed == sorted(self._reasons), "a failed block without a reason, or a reason without one"
            assert self._first_failed == min(failed, default=len(self._blocks))
            assert self._writers >= 0 and self._working >= 0 and self._pieces_left >= 0
            assert self._writers <= self._working, "somebody writes who is not at work"
