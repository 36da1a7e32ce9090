"""Keeps a policy's order from losing to plain LRU: both are tried in shadow, and the better one decides.

A shadow knows of each stream only how many blocks of its context a cache would hold: a turn costs it a few operations,
however long the prompt. Two shadows of the same capacity see the same turns, so what they leave out (prefixes that
streams share, prompts cut in the middle) burdens both alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

Worth = Callable[[str], float]
"""What a stream's blocks are worth now."""

MEMORY_TURNOVERS = 60.0
"""After requests for that many times the capacity, what was seen counts for 1/e."""
BEHIND, BEHIND_TURNOVERS = 0.003, 0.3
"""LRU takes over when the order is behind it by these shares, added: of what was asked for, and of the capacity."""
AHEAD = 0.0
"""The order comes back when it is ahead by that share."""
MAX_STREAMS = 16_384


class Shadow:
    """A cache of `capacity` blocks as run lengths: how many of each stream it holds, least recently used first."""

    def __init__(self, capacity: int, max_streams: int = MAX_STREAMS) -> None:
        self._capacity = capacity
        self._max_streams = max_streams
        self._held: OrderedDict[str, int] = OrderedDict()
        self._total = 0

    def use(self, stream: str, shared: int, num_blocks: int, worth: Worth | None, sample: int) -> int:
        """A turn of `num_blocks`, of which the first `shared` were its last turn's. Returns how many are found.

        `worth`: the order of eviction, None for LRU; `sample`: how many streams it compares.
        """
        had = self._held.pop(stream, 0)
        self._total -= had
        size = min(num_blocks, self._capacity)
        if size:
            self._held[stream] = size
            self._total += size
        while self._total > self._capacity or len(self._held) > self._max_streams:
            self._evict(stream, worth, sample)
        return min(had, shared, num_blocks)

    def grow(self, stream: str, more: int, worth: Worth | None, sample: int) -> None:
        """A turn ended: what is left of the stream has just been used, and has become longer."""
        had = self._held.get(stream, 0)
        if had:
            self.use(stream, 0, had + more, worth, sample)

    def _evict(self, using: str, worth: Worth | None, sample: int) -> None:
        others = islice((name for name in self._held if name != using), sample)
        victim = next(others) if worth is None else min(others, key=worth)
        over = self._total - self._capacity
        held = self._held[victim]
        if over <= 0 or held <= over:
            del self._held[victim]
            self._total -= held
        else:
            self._held[victim] = held - over
            self._total -= over

    def check(self) -> None:
        assert self._total == sum(self._held.values()) <= self._capacity
        assert all(held > 0 for held in self._held.values())
        assert len(self._held) <= self._max_streams


class Guard:
    """Of one order at one capacity."""

    def __init__(self, capacity_blocks: int, sample: int) -> None:
        self._capacity = capacity_blocks
        self._sample = sample
        self._lru = Shadow(capacity_blocks)
        self._own = Shadow(capacity_blocks)
        self._lead = 0.0
        self._asked = 0.0
        self.trusted = True
        """Whether the order decides; else LRU does."""

    @property
    def lead(self) -> float:
        """By how much of what was asked for the order is ahead of LRU."""
        return self._lead / self._asked if self._asked else 0.0

    def turn(self, stream: str, shared: int, num_blocks: int, worth: Worth) -> None:
        """A turn of the stream began; arguments as in `Shadow.use`."""
        if self._capacity <= 0:
            return
        found = self._own.use(stream, shared, num_blocks, worth, self._sample)
        found_lru = self._lru.use(stream, shared, num_blocks, None, 1)
        fades = max(0.0, 1.0 - num_blocks / (MEMORY_TURNOVERS * self._capacity))
        self._lead = self._lead * fades + found - found_lru
        self._asked = self._asked * fades + num_blocks
        if self._lead < -(BEHIND * self._asked + BEHIND_TURNOVERS * self._capacity):
            self.trusted = False
        elif self._lead >= AHEAD * self._asked:
            self.trusted = True

    def grew(self, stream: str, more: int, worth: Worth) -> None:
        """Its turn ended, with that many blocks more than it began with."""
        if self._capacity > 0:
            self._own.grow(stream, more, worth, self._sample)
            self._lru.grow(stream, more, None, 1)

    def check(self) -> None:
        self._own.check()
        self._lru.check()
