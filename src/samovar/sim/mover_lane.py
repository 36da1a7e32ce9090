"""The threads of a mover on the virtual clock: they take parts of transfers from a few queues in order, the first queue
that has some. Where the real ones change over after a piece, these do so at once."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from typing import Protocol


class Part(Protocol):
    """Blocks of one transfer that take the same way."""

    @property
    def num_pieces(self) -> int:
        """As many threads can work on it; at least 1."""
        ...

    def run(self, now: float) -> None:
        """Begin, or go on after a `pause`."""
        ...

    def pause(self, now: float) -> None: ...


class Lane:
    """A part stays until it is `drop`ped. Those at work are always the first ones, as far as there are threads."""

    __slots__ = ("_at_work", "_num_threads", "_queues")

    def __init__(self, num_threads: int, num_queues: int) -> None:
        self._num_threads = num_threads
        # In order of arrival; thousands may wait, and any of them may go.
        self._queues: tuple[OrderedDict[Part, None], ...] = tuple(OrderedDict() for _ in range(num_queues))
        self._at_work: list[Part] = []

    def put(self, queue: int, part: Part, now: float) -> None:
        """Of two queues the lower number goes first."""
        self._queues[queue][part] = None
        self._assign(now)

    def drop(self, part: Part, now: float) -> None:
        """It has ended, or is given up."""
        for queue in self._queues:
            queue.pop(part, None)
        if part in self._at_work:
            self._at_work.remove(part)
            self._assign(now)

    def _first(self) -> list[Part]:
        chosen: list[Part] = []
        left = self._num_threads
        for part in chain(*self._queues):
            if left <= 0:
                break
            chosen.append(part)
            left -= part.num_pieces
        return chosen

    def _assign(self, now: float) -> None:
        chosen = self._first()
        before, self._at_work = self._at_work, chosen
        for part in before:
            if part not in chosen:
                part.pause(now)
        for part in chosen:
            if part not in before:
                part.run(now)

    def check(self) -> None:
        """Recompute every invariant; raises AssertionError."""
        assert self._at_work == self._first(), "not the first ones are at work"
