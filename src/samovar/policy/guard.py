"""Keeps a policy's order from losing to plain LRU: both are tried in shadow, and the better one decides.

A shadow knows of each stream only how many blocks of its context a cache would hold: a turn costs it a few operations,
however long the prompt. Two shadows of the same capacity see the same turns, so what they leave out (prefixes that
streams share, prompts cut in the middle) burdens both alike. When the order takes over again, its shadow holds what LRU
has left in the real cache: it is judged by what it makes of that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

Worth = Callable[[str], float]
"""What a stream's blocks are worth now."""

SLACK_SHARE = 0.05
"""Of the capacity: LRU takes over when the order is further behind it than that, and gives back when the order has
since then found that much more than it."""
MOST_AHEAD = 1.0
"""Capacities: what an order has gained beyond that does not excuse what it loses."""
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

    def become(self, other: Shadow) -> None:
        """Hold what the other one holds."""
        self._held, self._total = OrderedDict(other._held), other._total

    def _evict(self, using: str, worth: Worth | None, sample: int) -> None:
        """An order may find that the stream itself is worth least: of its own blocks, too, some then go as soon as its
        turn lets go of them."""
        if worth is None:
            victim = next(name for name in self._held if name != using)
        else:
            victim = min(islice(self._held, sample), key=worth)
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
        self._ahead = 0.0
        self.trusted = True
        """Whether the order decides; else LRU does."""

    @property
    def ahead(self) -> float:
        """Blocks that the order has found more than LRU: since it decides, at most one capacity; while LRU decides,
        since it was furthest behind."""
        return self._ahead

    def turn(self, stream: str, shared: int, num_blocks: int, worth: Worth) -> None:
        """A turn of the stream began; arguments as in `Shadow.use`."""
        if self._capacity <= 0:
            return
        found = self._own.use(stream, shared, num_blocks, worth, self._sample)
        found -= self._lru.use(stream, shared, num_blocks, None, 1)
        slack = SLACK_SHARE * self._capacity
        if self.trusted:
            self._ahead = min(self._ahead + found, MOST_AHEAD * self._capacity)
            if self._ahead < -slack:
                self.trusted, self._ahead = False, 0.0
        else:
            self._ahead = max(0.0, self._ahead + found)
            if self._ahead > slack:
                self.trusted, self._ahead = True, 0.0
                self._own.become(self._lru)

    def grew(self, stream: str, more: int, worth: Worth) -> None:
        """Its turn ended, with that many blocks more than it began with."""
        if self._capacity > 0:
            self._own.grow(stream, more, worth, self._sample)
            self._lru.grow(stream, more, None, 1)

    def check(self) -> None:
        self._own.check()
        self._lru.check()
        assert self.trusted or self._ahead >= 0.0
