"""Which block holds which prefix: a tree of blocks by key, with leaf-first eviction.

Invariants:
- a block is in the index only if its parent (the block before it in the chain) is, so presence of a chain's keys is
  monotone: a lookup is a binary search, not a walk;
- a block is *pending* from the plan that fills it (`pending[block]` is that step) and *computed* from its apply;
  no child is pending from an earlier plan than its parent;
- whoever holds a block holds the chain before it too, so unused blocks form whole subtrees and every one of them can
  be evicted, leaves first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from samovar.base.ids import BlockId, BlockKey, RequestId
from samovar.core.block_pool import BlockPool
from samovar.policy.retention import EXPIRED, Leaf, RetentionPolicy

COMPUTED = -1
NOT_INDEXED = -2
ROOT = -1
NOBODY = -1
"""No child, no sibling."""


class Eviction(NamedTuple):
    """When a key left the device, and for whom room was made."""

    at_s: float
    for_request: RequestId | None
    expired: bool


class PrefixIndex:
    """The index of one KV group. Blocks given to `insert` are held by the caller; unused ones stay until evicted."""

    __slots__ = (
        "_blocks", "_depth", "_heap", "_keys", "_last_used", "_newer", "_older", "_parents", "_policy", "_pool",
        "_restore_s", "_stamp", "_stamps", "_streams", "_superseded", "_youngest", "evicted", "max_evicted",
        "num_evicted", "num_unused", "pending",
    )  # fmt: skip

    def __init__(
        self,
        pool: BlockPool,
        policy: RetentionPolicy,
        restore_s: Callable[[BlockKey, int], float] = lambda key, depth: 1.0,
    ) -> None:
        """`restore_s`: what `Leaf.restore_s` says of a block, from its key and its depth in blocks."""
        n = pool.num_blocks
        self._pool = pool
        self._policy = policy
        self._restore_s = restore_s
        self._blocks: dict[BlockKey, BlockId] = {}
        self._keys: list[BlockKey | None] = [None] * n
        self._parents: list[int] = [ROOT] * n
        # A block's children as a linked list: its youngest, from which `_older` leads to the others and `_newer` back.
        self._youngest: list[int] = [NOBODY] * n
        self._older: list[int] = [NOBODY] * n
        self._newer: list[int] = [NOBODY] * n
        self._depth: list[int] = [0] * n
        self._stamps: list[int] = [0] * n
        self._last_used: list[float] = [0.0] * n
        self._streams: list[str] = [""] * n
        self._superseded = bytearray(n)
        self.pending: list[int] = [NOT_INDEXED] * n
        """Per block: the step that fills it, COMPUTED, or NOT_INDEXED."""
        self._stamp = 0
        # (stamp, block) of leaves; entries whose block was used since are skipped when they surface.
        self._heap: list[tuple[int, int]] = []
        self.num_unused = 0
        """Indexed blocks that nobody holds: what eviction could free."""
        self.num_evicted = 0
        self.evicted: OrderedDict[BlockKey, Eviction] = OrderedDict()
        """Keys that were here, for the reason of a later miss; the oldest are forgotten."""
        self.max_evicted = max(65_536, n)

    # -- looking up ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, key: BlockKey) -> BlockId | None:
        return self._blocks.get(key)

    def any_key(self) -> BlockKey | None:
        """The one that was inserted first; None when there is none."""
        return next(iter(self._blocks), None)

    def key_of(self, block: BlockId) -> BlockKey | None:
        return self._keys[block]

    def parent_of(self, block: BlockId) -> BlockId | None:
        """The block before an indexed one."""
        parent = self._parents[block]
        return None if parent == ROOT else BlockId(parent)

    def last_used_s(self, block: BlockId) -> float:
        """When it was let go of after a use; 0.0 before the first."""
        return self._last_used[block]

    def stream_of(self, block: BlockId) -> str:
        """Of the request that made it findable or, since, of the last that let go of it."""
        return self._streams[block]

    def match(self, keys: Sequence[BlockKey], first: int, limit: int) -> int:
        """The largest n <= limit such that keys[first:n] are all present; `first` if keys[first] is not.

        Everything before `first` must be present. Gallops, then bisects: O(log n) probes of the dictionary.
        """
        blocks = self._blocks
        if first >= limit or keys[first] not in blocks:
            return first
        low, step = first, 1  # keys[low] is present
        while low + step < limit and keys[low + step] in blocks:
            low += step
            step *= 2
        high = min(low + step, limit)  # keys[high] is absent, or high is the limit
        while high - low > 1:
            mid = (low + high) // 2
            if keys[mid] in blocks:
                low = mid
            else:
                high = mid
        return low + 1

    def chain(self, key: BlockKey, count: int) -> list[BlockId]:
        """The last `count` blocks of the chain that ends at `key`, in order."""
        block: int = self._blocks[key]
        parents = self._parents
        found: list[BlockId] = []
        append = found.append
        for _ in range(count):
            append(BlockId(block))
            block = parents[block]
        found.reverse()
        return found

    # -- growing ---------------------------------------------------------------------------------------------------

    def insert(self, key: BlockKey, block: BlockId, parent: BlockId | None, step: int, stream: str) -> None:
        """Make `block` findable under `key`. `step`: the step that fills it, or COMPUTED."""
        assert key not in self._blocks and self._keys[block] is None and self._pool.refs[block] > 0
        assert parent is None or self._keys[parent] is not None
        self._blocks[key] = block
        self._keys[block] = key
        self._parents[block] = ROOT if parent is None else parent
        self._depth[block] = 0 if parent is None else self._depth[parent] + 1
        if parent is not None:
            sibling = self._youngest[parent]
            self._youngest[parent] = block
            self._older[block] = sibling
            if sibling != NOBODY:
                self._newer[sibling] = block
        self.pending[block] = step
        self._streams[block] = stream
        self._stamps[block] = 0
        self._last_used[block] = 0.0
        if self.evicted:
            self.evicted.pop(key, None)

    def computed(self, blocks: Sequence[BlockId]) -> None:
        """The step that filled these pending blocks was applied."""
        pending = self.pending
        for block in blocks:
            if pending[block] != NOT_INDEXED:
                pending[block] = COMPUTED

    # -- use and disuse --------------------------------------------------------------------------------------------

    def hold(self, blocks: Sequence[BlockId]) -> None:
        """One more holder for each of these (indexed) blocks."""
        refs = self._pool.refs
        woken = 0
        for block in blocks:
            count = refs[block]
            if count == 0:
                woken += 1
            refs[block] = count + 1
        self.num_unused -= woken

    def release(self, blocks: Sequence[BlockId], now: float, stream: str) -> None:
        """The end of a use: one holder less for each block of a table, in table order. Those nobody holds stay cached
        if they are indexed and become free if not."""
        self._stamp = stamp = self._stamp + 1
        keys = self._keys
        stamps, last_used, streams, superseded = self._stamps, self._last_used, self._streams, self._superseded
        for block in blocks:
            if keys[block] is not None:
                stamps[block] = stamp
                last_used[block] = now
                streams[block] = stream
                superseded[block] = 0
        self.unhold(blocks)

    def unhold(self, blocks: Sequence[BlockId]) -> None:
        """As `release`, for who only kept them in place: what was used last, and by whom, stays as it is."""
        refs, keys, youngest, stamps = self._pool.refs, self._keys, self._youngest, self._stamps
        for block in reversed(blocks):
            count = refs[block] - 1
            refs[block] = count
            assert count >= 0
            if count:
                continue
            if keys[block] is None:
                self._pool.give_back(block)
                continue
            self.num_unused += 1
            if youngest[block] == NOBODY:
                heappush(self._heap, (stamps[block], block))
        if len(self._heap) > 2 * self.num_unused + 1024:
            self._rebuild_heap()

    def supersede(self, keys: Sequence[BlockKey], stream: str) -> None:
        """Of these consecutive keys of a chain, those that `stream` used last and nobody uses are not wanted any more:
        the first to be compared at the next eviction."""
        self._stamp += 1
        # Below every stamp of a use, so that a sample of the least recently used has them.
        stamp = -self._stamp
        for key in reversed(keys):
            block = self._blocks.get(key)
            if block is None or self._pool.refs[block] or self._streams[block] != stream:
                continue
            self._superseded[block] = 1
            self._stamps[block] = stamp
            if self._youngest[block] == NOBODY:
                heappush(self._heap, (stamp, block))

    def _rebuild_heap(self) -> None:
        refs, keys, youngest, stamps = self._pool.refs, self._keys, self._youngest, self._stamps
        unused = (b for b in self._blocks.values() if keys[b] is not None and refs[b] == 0)
        self._heap = [(stamps[b], b) for b in unused if youngest[b] == NOBODY]
        heapify(self._heap)

    # -- shrinking -------------------------------------------------------------------------------------------------

    def _pop_leaf(self) -> BlockId | None:
        heap, refs, keys = self._heap, self._pool.refs, self._keys
        youngest, stamps = self._youngest, self._stamps
        while heap:
            stamp, block = heappop(heap)
            while heap and heap[0] == (stamp, block):
                heappop(heap)  # it was held and let go of without being used
            if keys[block] is not None and refs[block] == 0 and youngest[block] == NOBODY and stamps[block] == stamp:
                return BlockId(block)
        return None

    def leaf(self, block: BlockId) -> Leaf:
        key = self._keys[block]
        assert key is not None
        depth = self._depth[block]
        superseded = bool(self._superseded[block])
        restore_s = self._restore_s(key, depth)
        return Leaf(block, depth, self._last_used[block], self._streams[block], superseded, restore_s)

    def evict(self, count: int, now: float, for_request: RequestId | None, worth: float = inf) -> list[BlockKey]:
        """Free `count` unused blocks (at most `num_unused`), leaves first, the policy's lowest value first; fewer when
        the policy values what is left at more than `worth`. Returns the keys that went, in that order."""
        assert count <= self.num_unused
        sample = max(1, self._policy.sample)
        values = sample > 1 or worth < inf  # else recency alone decides
        # Leaves taken off the heap, by (value, stamp): values do not change within a call.
        window: list[tuple[float, int, BlockId]] = []
        gone: list[BlockKey] = []
        while len(gone) < count:
            while len(window) < sample and (leaf := self._pop_leaf()) is not None:
                value = self._policy.value(self.leaf(leaf), now) if values else 0.0
                heappush(window, (value, self._stamps[leaf], leaf))
            value, _, victim = window[0]
            if value > worth:
                break
            heappop(window)
            self._evict_run(victim, count, Eviction(now, for_request, value == EXPIRED), gone)
        for _, stamp, block in window:
            heappush(self._heap, (stamp, block))
        while len(self.evicted) > self.max_evicted:
            self.evicted.popitem(last=False)
        return gone

    def _evict_run(self, block: BlockId, count: int, eviction: Eviction, gone: list[BlockKey]) -> None:
        """Free a leaf and those before it that were let go of together with it, until `gone` has `count` keys: no
        policy tells them apart."""
        stamp = self._stamps[block]
        while True:
            key = self._keys[block]
            assert key is not None
            self.evicted[key] = eviction
            gone.append(key)
            parent = self._remove(block)
            self.num_unused -= 1
            self.num_evicted += 1
            self._pool.give_back(block)
            if parent is None or self._youngest[parent] != NOBODY or self._pool.refs[parent]:
                return
            if self._stamps[parent] != stamp or len(gone) >= count:
                heappush(self._heap, (self._stamps[parent], parent))
                return
            block = parent

    def _remove(self, block: BlockId) -> BlockId | None:
        key = self._keys[block]
        assert key is not None and self._youngest[block] == NOBODY
        del self._blocks[key]
        self._keys[block] = None
        self.pending[block] = NOT_INDEXED
        self._superseded[block] = 0
        parent = self._parents[block]
        self._parents[block] = ROOT
        if parent == ROOT:
            return None
        older, newer = self._older[block], self._newer[block]
        self._older[block] = self._newer[block] = NOBODY
        if newer == NOBODY:
            self._youngest[parent] = older
        else:
            self._older[newer] = older
        if older != NOBODY:
            self._newer[older] = newer
        return BlockId(parent)

    def subtree(self, block: BlockId) -> list[BlockId]:
        """An indexed block and all that is built on it, each after its parent."""
        older, youngest = self._older, self._youngest
        found = [block]
        for parent in found:  # grows meanwhile
            child = youngest[parent]
            while child != NOBODY:
                found.append(BlockId(child))
                child = older[child]
        return found

    def forget(self, blocks: Sequence[BlockId]) -> set[BlockId]:
        """Make these blocks and everything built on them unfindable: they will never be filled, or are damaged.

        Returns all blocks that left the index. Their holders keep them; unused ones become free."""
        forgotten: set[BlockId] = set()
        for top in blocks:
            if self._keys[top] is None:
                continue
            gone = self.subtree(top)
            for block in reversed(gone):
                parent = self._remove(block)
                if self._pool.refs[block] == 0:
                    self.num_unused -= 1
                    self._pool.give_back(block)
            if parent is not None and self._youngest[parent] == NOBODY and not self._pool.refs[parent]:
                heappush(self._heap, (self._stamps[parent], parent))
            forgotten.update(gone)
        return forgotten

    # -- checking --------------------------------------------------------------------------------------------------

    def indexed_blocks(self) -> list[BlockId]:
        return list(self._blocks.values())

    def check(self) -> None:
        children: dict[int, set[int]] = {}
        unused = 0
        live = {(stamp, block) for stamp, block in self._heap}
        for key, block in self._blocks.items():
            assert self._keys[block] == key, "two names for a block"
            parent = self._parents[block]
            assert not self._pool.is_free(block), "an indexed block is free"
            assert self.pending[block] != NOT_INDEXED
            if parent == ROOT:
                assert self._depth[block] == 0
            else:
                assert self._keys[parent] is not None, "a child outlived its parent"
                assert self._depth[block] == self._depth[parent] + 1
                children.setdefault(parent, set()).add(block)
                assert self._pool.refs[block] == 0 or self._pool.refs[parent] > 0, "a held block on an unused one"
                step = self.pending[block]
                assert COMPUTED in (step, self.pending[parent]) or step >= self.pending[parent], "pending before parent"
            if self._pool.refs[block] == 0:
                unused += 1
        parents = {number for number, child in enumerate(self._youngest) if child != NOBODY}
        assert parents == children.keys(), "a block has children that are none, or lacks some"
        for number, of_block in children.items():
            assert self._children(number) == of_block, "the list of a block's children differs"
        assert unused == self.num_unused, "unused count differs"
        assert sum(1 for k in self._keys if k is not None) == len(self._blocks)
        for block in self._blocks.values():
            if self._pool.refs[block] == 0 and block not in children:
                assert (self._stamps[block], block) in live, "a leaf that eviction cannot find"
        assert len(self.evicted) <= self.max_evicted

    def _children(self, parent: int) -> set[int]:
        found: set[int] = set()
        before, child = NOBODY, self._youngest[parent]
        while child != NOBODY:
            assert child not in found and self._newer[child] == before, "a list of children is broken"
            found.add(child)
            before, child = child, self._older[child]
        return found
