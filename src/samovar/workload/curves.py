"""What a cache would have hit: by how long blocks survive, and by how many tokens it holds.

All curves count tokens of prompts in a prefix that is still there. A call takes its blocks when it starts; nothing else
is in the cache, and a prompt longer than the cache leaves its first blocks there.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from samovar.workload.load import Floats, Load
from samovar.workload.reuse import Ints


def keep_warm_hits(load: Load, survive_s: Sequence[float]) -> Ints:
    """Tokens hit if a block lives that many seconds after its last use: from the end of the call that, of all which
    used it, started last. [len(survive_s)]"""
    idle_s = np.maximum(0.0, load.start_s[load.piece_call] - load.end_s[load.piece_source])
    idle_s = _running_max(idle_s, load.piece_call)  # what lies behind a lost block is lost with it
    order = np.argsort(idle_s)
    summed = np.concatenate([[0], np.cumsum(load.piece_tokens()[order])])
    hits: Ints = summed[np.searchsorted(idle_s[order], survive_s, side="right")]
    return hits


def _running_max(values: Floats, keys: Ints) -> Floats:
    """The largest value so far among neighbours with the same key."""
    result = values.copy()
    same = keys[1:] == keys[:-1]
    for at in np.flatnonzero(same).tolist():
        if result[at] > result[at + 1]:
            result[at + 1] = result[at]
    return result


def in_lanes(load: Load, lanes: int) -> Floats:
    """When each group begins if that many run at a time, the next one as soon as a lane is free. [groups]"""
    free = [0.0] * lanes
    begins = []
    for length_s in load.group_length_s.tolist():
        began_s = heappop(free)
        begins.append(began_s)
        heappush(free, began_s + length_s)
    return np.array(begins)


class CapacityCurves:
    """Hits by capacity of one cache that all calls share, their groups begun at `group_start_s`."""

    def __init__(self, load: Load, group_start_s: Floats) -> None:
        at_s = load.start_s + group_start_s[load.group]
        order = np.argsort(at_s, kind="stable")
        rank = np.empty(load.num_calls, dtype=np.int64)
        rank[order] = np.arange(load.num_calls)
        self._length = load.input_tokens[order]
        self._room = (load.num_blocks * load.block_tokens)[order]
        by_call = np.lexsort((load.piece_start, rank[load.piece_call]))
        self._call = rank[load.piece_call][by_call]
        self._source = rank[load.piece_source][by_call]
        self._start = load.piece_start[by_call]
        self._stop = load.piece_stop[by_call]
        self._distance = self._stack_distances()

    def lru(self, capacity_tokens: Sequence[int]) -> Ints:
        """Tokens hit by least-recently-used eviction, leaf first. [len(capacity_tokens)]"""
        limit = self._length[self._call]
        size = self._stop - self._start
        hits = [
            np.minimum(self._start + np.clip(capacity - self._distance, 0, size), limit)
            - np.minimum(self._start, limit)
            for capacity in capacity_tokens
        ]
        return np.array([found.sum() for found in hits], dtype=np.int64)

    def optimal(self, capacity_tokens: Sequence[int]) -> Ints:
        """Tokens hit by an eviction that knows the future (Belady's): what is needed last goes first, what never again
        is not kept. No policy of leaf-first eviction can do better. [len(capacity_tokens)]"""
        order = np.lexsort((self._start, self._source))
        sources = self._source[order]
        rows = list(zip(self._call[order].tolist(), (self._stop - self._start)[order].tolist(), strict=True))
        edges = np.searchsorted(sources, np.arange(len(self._length) + 1)).tolist()
        return np.array([self._optimal(capacity, rows, edges) for capacity in capacity_tokens], dtype=np.int64)

    def _optimal(self, capacity: int, rows: list[tuple[int, int]], edges: list[int]) -> int:
        kept = [0] * len(self._length)  # tokens of room in the cache by the call that needs them next
        furthest: list[int] = []  # those calls, negated, as a heap
        total = hits = 0
        lengths = self._length.tolist()
        for call, (first, last) in enumerate(pairwise(edges)):
            hits += min(kept[call], lengths[call])
            total -= kept[call]
            kept[call] = 0
            for needed, size in rows[first:last]:
                if kept[needed] == 0:
                    heappush(furthest, -needed)
                kept[needed] += size
                total += size
            while total > capacity:
                needed = -furthest[0]
                drop = min(kept[needed], total - capacity)
                kept[needed] -= drop
                total -= drop
                if kept[needed] == 0:
                    heappop(furthest)
        return hits

    def _stack_distances(self) -> NDArray[np.int64]:
        """For each piece the room of everything that was used since it was, at the time it is used again."""
        tree = _Sums(len(self._length))
        distances = np.zeros(len(self._call), dtype=np.int64)
        calls, sources = self._call.tolist(), self._source.tolist()
        sizes = (self._stop - self._start).tolist()
        rooms = self._room.tolist()
        at = 0
        for call, room in enumerate(rooms):
            first = at
            while at < len(calls) and calls[at] == call:
                distances[at] = tree.after(sources[at])
                at += 1
            for piece in range(first, at):
                tree.add(sources[piece], -sizes[piece])
            tree.add(call, room)
        return distances


class _Sums:
    """Numbers by position with fast sums over a suffix (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tree = [0] * (size + 1)
        self._total = 0

    def add(self, position: int, amount: int) -> None:
        self._total += amount
        tree, at = self._tree, position + 1
        while at <= self._size:
            tree[at] += amount
            at += at & -at

    def after(self, position: int) -> int:
        """Sum of everything behind `position`."""
        tree, at, below = self._tree, position + 1, 0
        while at:
            below += tree[at]
            at &= at - 1
        return self._total - below


def capacity_grid(load: Load, steps_per_doubling: int = 2) -> list[int]:
    """Capacities to ask for, in tokens: multiples of every block size, from the longest prompt's order of magnitude
    to where nothing is ever evicted."""
    unit = int(np.lcm.reduce(np.unique(load.block_tokens)))
    distinct = int(((load.num_blocks - load.hit_blocks) * load.block_tokens).sum())
    grid: list[int] = []
    size = max(float(unit), min(32_768.0, distinct / 8))
    while not grid or grid[-1] < distinct:
        grid.append(max(unit, round(size / unit) * unit))
        size *= 2 ** (1 / steps_per_doubling)
    return sorted(set(grid))
