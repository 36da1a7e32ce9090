"""One replay: recorded requests against the real prefix index and block pool, under one policy.

A request takes no time: it finds its blocks, computes the others in room of its own, and lets go of all; then what is
too much for the cache goes, its own blocks not excepted. A prompt longer than the cache leaves its first blocks there.
What a request turns out to be (how long it took, how it ended) is told when it ends, never before; a client's hints
come with the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from samovar.base.ids import BlockId
from samovar.bench.policy_eval_hints import Giver
from samovar.bench.policy_eval_trace import Asked, AskedSessions, Event, Piece
from samovar.core.block_pool import BlockPool
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.policy.retention import RetentionPolicy, TurnEnd, TurnStart


@dataclass(frozen=True, slots=True)
class Hits:
    hit_tokens: int
    input_tokens: int
    evicted_blocks: int

    @property
    def share(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0


class Cache:
    """Keeps `capacity` blocks between requests. Knows the keys of each stream's last prompt."""

    def __init__(self, asked: AskedSessions, capacity: int, policy: RetentionPolicy) -> None:
        self._capacity = capacity
        self._pool = BlockPool(capacity + asked.longest_blocks)
        # Where recency alone decides, what a newer turn cut off is as recent as its last use.
        self._marks = policy.sample > 1
        self._keys: dict[str, list[bytes]] = {}
        self.index = PrefixIndex(self._pool, policy)

    def find(self, asked: Asked) -> int:
        """How many of its blocks are there."""
        keys = self._keys.setdefault(asked.stream, [])
        orphans = keys[asked.kept :]
        keys[asked.kept :] = asked.new_keys
        if orphans and self._marks:
            self.index.supersede(orphans, asked.stream)
        return self.index.match(keys, 0, len(keys))

    def hold(self, asked: Asked, hit: int) -> list[BlockId]:
        """Its blocks: the `hit` that were found, and new ones for the others."""
        keys, index = self._keys[asked.stream], self.index
        blocks = index.chain(keys[hit - 1], hit) if hit else []
        index.hold(blocks)
        parent = blocks[-1] if blocks else None
        for key, block in zip(keys[hit:], self._pool.take_many(len(keys) - hit), strict=True):
            index.insert(key, block, parent, COMPUTED, asked.stream)
            blocks.append(block)
            parent = block
        return blocks

    def shrink(self, now: float) -> None:
        over = self.index.num_unused - self._capacity
        if over > 0:
            self.index.evict(over, now, None)


def replay(asked: AskedSessions, events: list[Event], capacity: int, policy: RetentionPolicy, give: Giver) -> Hits:
    """`capacity` in blocks; `policy` must be a new one."""
    cache = Cache(asked, capacity, policy)
    hit_tokens = 0
    for event in events:
        request, now = asked.requests[event.number], event.time_s
        stream = request.stream
        if not event.begins:
            policy.turn_ended(TurnEnd(stream, len(request.nodes), request.reason), now)
            continue
        hit = cache.find(request)
        limit = request.hit_limit
        hit_tokens += min(hit, limit) * request.block_tokens
        policy.turn_started(TurnStart(stream, request.parent, limit, min(hit, limit)), now)
        for hint in give(request.back_s):
            policy.hinted(stream, hint, now)
        cache.index.release(cache.hold(request, hit), now, stream)
        cache.shrink(now)
    return Hits(hit_tokens, asked.input_tokens, cache.index.num_evicted)


def replay_belady(asked: AskedSessions, events: list[Event], capacity: int, uses: list[list[Piece]]) -> Hits:
    """Knows when each block is used next: what is needed last goes first, which is leaves first, since whoever needs a
    block needs those before it. `uses`: of `next_uses`. Blocks that are needed together are one number here."""
    kept = [0] * len(uses)  # blocks in the cache by the request that needs them next
    furthest: list[int] = []  # those requests, negated, as a heap
    total = hit_tokens = num_evicted = 0
    begun = (asked.requests[event.number] for event in events if event.begins)
    for number, (request, pieces) in enumerate(zip(begun, uses, strict=True)):
        hit_tokens += min(kept[number], request.hit_limit) * request.block_tokens
        total -= kept[number]
        kept[number] = start = 0
        for stop, next_use in pieces:
            if next_use is not None:
                if not kept[next_use]:
                    heappush(furthest, -next_use)
                kept[next_use] += stop - start
                total += stop - start
            start = stop
        while total > capacity:
            needed = -furthest[0]
            gone = min(kept[needed], total - capacity)
            kept[needed] -= gone
            total -= gone
            num_evicted += gone
            if not kept[needed]:
                heappop(furthest)
    return Hits(hit_tokens, asked.input_tokens, num_evicted)
