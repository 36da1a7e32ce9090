"""Block tables of requests: taking blocks, adopting cached ones, publishing computed ones, and letting go.

One KV group today: `tables` of a plan have one entry, and this class owns that group's pool and index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from samovar.base.ids import BlockId, BlockKey, RequestId
from samovar.core.block_pool import BlockPool
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.core.state import Holding, RequestState
from samovar.policy.retention import RetentionPolicy


@dataclass(slots=True)
class Fence:
    """Blocks their request let go of while a plan in flight or a transfer still touches them."""

    holding: Holding
    stream: str
    unwanted_from: int | None = None
    """From this position of the chain on its stream has no use for them any more."""


class KVManager:
    __slots__ = ("_fences", "_on_evict", "block_tokens", "index", "num_deduplicated", "pool")

    def __init__(
        self,
        num_blocks: int,
        block_tokens: int,
        policy: RetentionPolicy,
        restore_s: Callable[[BlockKey, int], float],
        on_evict: Callable[[list[BlockKey]], None],
    ) -> None:
        """`restore_s`: of `PrefixIndex`. `on_evict` is told every key that goes for want of room."""
        self.block_tokens = block_tokens
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex(self.pool, policy, restore_s)
        self._on_evict = on_evict
        self._fences: list[Fence] = []
        self.num_deduplicated = 0

    @property
    def releases_soon(self) -> bool:
        """Whether blocks wait to be released that no transfer touches: the end of a plan will do it."""
        return any(not fence.holding.num_transfers for fence in self._fences)

    # -- room ------------------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Blocks that can be had now: free ones, and cached ones nobody uses."""
        return self.pool.num_free + self.index.num_unused

    def coming(self) -> int:
        """Blocks that will be available once the plans and transfers that touch them ended."""
        refs = self.pool.refs
        return sum(1 for fence in self._fences for block in fence.holding.blocks if refs[block] == 1)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)

    def take(self, count: int, now: float, for_request: RequestId | None) -> list[BlockId]:
        """`count` blocks (at most `available`), held once, evicting what it must."""
        short = count - self.pool.num_free
        if short > 0:
            self._on_evict(self.index.evict(short, now, for_request))
        return self.pool.take_many(count)

    # -- finding ---------------------------------------------------------------------------------------------------

    def find(self, keys: list[BlockKey], first: int, limit: int, step: int) -> tuple[int, bool]:
        """(n, held): keys[first:n] have blocks that a plan `step` may read; `held` when the next block is being filled
        by that very plan, so that the plan after it may read it.

        Blocks pending from earlier plans count: plans run in order.
        """
        found = self.index.match(keys, first, limit)
        low, high = first, found
        pending, get = self.index.pending, self.index.get
        while low < high:  # a child never became pending before its parent, so this bisects
            mid = (low + high) // 2
            block = get(keys[mid])
            assert block is not None
            if pending[block] == step:
                high = mid
            else:
                low = mid + 1
        return low, low < found

    def num_unused(self, keys: list[BlockKey], found: int) -> int:
        """How many of the blocks of keys[:found], all present, nobody holds. Whoever holds a block holds those before
        it, so they are the last ones: a bisection, since a full device asks this for every waiting request and plan."""
        low, high = 0, found
        refs, get = self.pool.refs, self.index.get
        while low < high:
            mid = (low + high) // 2
            block = get(keys[mid])
            assert block is not None
            if refs[block]:
                low = mid + 1
            else:
                high = mid
        return found - low

    def chain(self, keys: list[BlockKey], first: int, end: int) -> list[BlockId]:
        """The index's blocks for keys[first:end]."""
        return self.index.chain(keys[end - 1], end - first) if end > first else []

    def adopt(self, state: RequestState, blocks: list[BlockId]) -> None:
        """Append cached blocks to a request's table; everything before them is the index's own."""
        assert state.num_indexed == len(state.blocks)
        self.index.hold(blocks)
        state.blocks.extend(blocks)
        state.num_indexed += len(blocks)
        state.num_computed = state.num_applied = len(state.blocks) * self.block_tokens

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish_pending(self, state: RequestState, step: int) -> list[BlockId]:
        """Make the blocks that plan `step` fills with known tokens findable for later plans."""
        index, blocks, keys = self.index, state.blocks, state.keys
        at = state.num_indexed
        end = min(state.num_computed // self.block_tokens, len(keys))
        published: list[BlockId] = []
        while at < end and index.get(keys[at]) is None:
            block = blocks[at]
            index.insert(keys[at], block, blocks[at - 1] if at else None, step, state.stream_name)
            published.append(block)
            at += 1
        state.num_indexed = at
        return published

    def publish_computed(self, state: RequestState, last_plan: int) -> list[tuple[int, BlockId]]:
        """After an apply: index the full blocks not findable yet. Where an equal block is already there the request's
        table is redirected to it and its own copy let go of.

        Returns the redirects (index in the table, block).
        """
        index, blocks, keys = self.index, state.blocks, state.keys
        at = state.num_indexed
        end = min(state.num_applied // self.block_tokens, len(keys))
        redirects: list[tuple[int, BlockId]] = []
        while at < end:
            mine = blocks[at]
            theirs = index.get(keys[at])
            if theirs is None:
                index.insert(keys[at], mine, blocks[at - 1] if at else None, COMPUTED, state.stream_name)
            elif theirs != mine and index.pending[theirs] != COMPUTED:
                break  # it may yet fail: look again after the next apply
            elif theirs != mine:
                index.hold([theirs])
                blocks[at] = theirs
                redirects.append((at, theirs))
                copy = Holding()
                copy.blocks.append(mine)
                copy.last_step = last_plan
                self.fence(copy, "")
                self.num_deduplicated += 1
            at += 1
        state.num_indexed = at
        return redirects

    # -- letting go ------------------------------------------------------------------------------------------------

    def let_go(self, state: RequestState) -> None:
        """The request gives up its table; `sweep` releases the blocks when nothing touches them."""
        if state.holding.blocks or state.holding.num_transfers:
            self.fence(state.holding, state.stream_name)
        state.holding = Holding()
        state.num_indexed = state.num_computed = state.num_applied = 0
        state.num_sent_blocks = state.num_offered = 0

    def fence(self, holding: Holding, stream: str) -> None:
        """Blocks that no request holds but a transfer touches: released when it has ended."""
        self._fences.append(Fence(holding, stream))

    def supersede(self, keys: Sequence[BlockKey], first: int, stream: str) -> None:
        """`stream` has no use any more for these blocks of a chain, which begin at position `first`: they are the next
        victims, or will be once nothing touches them. Those that somebody else uses, or used since, stay."""
        if not keys:
            return
        self.index.supersede(keys, stream)
        block = self.index.get(keys[0])
        for fence in self._fences:
            blocks = fence.holding.blocks
            if fence.stream == stream and first < len(blocks) and blocks[first] == block:
                fence.unwanted_from = first if fence.unwanted_from is None else min(first, fence.unwanted_from)

    def wanted_again(self, stream: str) -> None:
        """Its next turn has begun: what was said of blocks that something still touches is void."""
        for fence in self._fences:
            if fence.stream == stream:
                fence.unwanted_from = None

    def sweep(self, now: float, oldest_in_flight: int | None) -> None:
        """Release every fenced table that no plan from `oldest_in_flight` on names and no transfer touches."""
        if not self._fences:
            return
        kept: list[Fence] = []
        for fence in self._fences:
            holding = fence.holding
            named = oldest_in_flight is not None and holding.last_step >= oldest_in_flight
            if named or holding.num_transfers:
                kept.append(fence)
                continue
            unwanted = holding.blocks[fence.unwanted_from :] if fence.unwanted_from is not None else ()
            keys = [key for block in unwanted if (key := self.index.key_of(block)) is not None]
            self.index.release(holding.blocks, now, fence.stream)
            if keys:
                self.index.supersede(keys, fence.stream)
        self._fences = kept

    def check(self, tables: Iterable[list[BlockId]]) -> None:
        holders = [block for table in tables for block in table]
        holders += [block for fence in self._fences for block in fence.holding.blocks]
        self.pool.check(holders, self.index.indexed_blocks())
        self.index.check()
        assert self.pool.num_free + self.index.num_unused <= self.pool.num_blocks
