"""One tier below the device as the scheduler's half sees it: which blocks it has, which are on their way into it, and
in which slots they lie. Host memory and disk are two of these; a slot of the disk is nothing but room for one record.

Invariants:
- a slot has one owner: a findable block, one that is being filled, or whoever took the slot to empty it (`Deletions`);
- a block is findable only once its bytes have arrived and the block before it in its chain is findable; what arrives
  sooner waits for that one;
- whoever holds a block holds the chain before it, as the prefix index wants it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from samovar.base.ids import BlockId, BlockKey
from samovar.core.block_pool import BlockPool
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.policy.agent import order_for
from samovar.policy.retention import Leaf, RetentionPolicy

EVICT_AHEAD_BLOCKS = 64
"""Evicted at once when room is short, so that most stores need not look for victims."""


@dataclass(slots=True, eq=False)
class Filling:
    """A slot that bytes are on their way into, for a block that will follow `parent`, b"" for a first one."""

    key: BlockKey
    parent: BlockKey
    slot: BlockId
    generation: int
    stream: str
    stays: bool
    """False: the bytes only pass through, since there is nothing the block could follow, or since another slot is being
    filled with the same block."""
    unwanted: bool = False
    """Its stream has other tokens in its place by now."""
    doomed: bool = False
    """It is known to be wrong: nobody may get it."""


class Tier:
    """`held` lists of blocks are chains from their start, as `hold` gives them; who holds one lets go of it once."""

    __slots__ = (
        "_ahead", "_coming", "_condemned", "_filling", "_generations", "_last_generation", "_policy", "_restore_s",
        "_waiting", "failed", "forgotten_blocks", "index", "loaded_blocks", "most_used", "name", "pool",
        "promoted_blocks", "recovered_blocks", "stored_blocks",
    )  # fmt: skip

    def __init__(
        self, name: str, num_blocks: int, policy: RetentionPolicy, restore_s: Callable[[BlockKey, int], float]
    ) -> None:
        """`restore_s`: seconds to have a block back once it is gone from here, from its key and depth."""
        policy = order_for(policy, num_blocks)
        self.name = name
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex(self.pool, policy, restore_s)
        self.index.max_evicted = 0  # misses are explained by the device's index
        self._policy = policy
        self._restore_s = restore_s
        self._ahead = min(EVICT_AHEAD_BLOCKS, num_blocks // 16)
        self._last_generation = 0
        self._generations = [0] * num_blocks
        self._filling: dict[BlockId, Filling] = {}
        self._coming: dict[BlockKey, Filling] = {}
        """Of those, the ones that stay."""
        self._waiting: dict[BlockKey, list[Filling]] = {}
        """Arrived; by the block that they have to wait for."""
        self._condemned: dict[BlockId, tuple[BlockKey, str]] = {}
        """Held blocks to be superseded once they are let go of, with the stream that has no use for them."""
        self.most_used = 0
        """Slots that were ever in use."""
        self.stored_blocks = 0
        """That became findable: from the tier above, from the one below, found at a start or again, in these three."""
        self.promoted_blocks = 0
        self.recovered_blocks = 0
        self.forgotten_blocks = 0
        """That were findable and are not, though nothing was to have their room."""
        self.loaded_blocks = 0
        """Copies that were taken up from here."""
        self.failed: Counter[str] = Counter()

    @property
    def num_used(self) -> int:
        """Slots that are not free, whatever for."""
        return self.pool.num_blocks - self.pool.num_free

    # -- looking up ------------------------------------------------------------------------------------------------

    def match(self, keys: Sequence[BlockKey]) -> int:
        """Leading keys that are findable; O(log n)."""
        return self.index.match(keys, 0, len(keys))

    def coming(self, key: BlockKey) -> bool:
        """Whether it is on its way, to stay."""
        return key in self._coming

    def expects(self, key: BlockKey) -> bool:
        """Whether a block may follow this one here: it is findable or coming, or there is none before (b"")."""
        return not key or self.index.get(key) is not None or key in self._coming

    def leaf(self, key: BlockKey) -> Leaf:
        """What the policy gets to see of a findable block, a leaf or not."""
        return self.index.leaf(self._block(key))

    def parent_of(self, key: BlockKey) -> BlockKey:
        """Of a findable block; b"" for a first one."""
        parent = self.index.parent_of(self._block(key))
        return b"" if parent is None else self._name(parent)

    def slots(self, keys: Sequence[BlockKey]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where findable blocks lie, and the generations of those slots."""
        slots = tuple(self._block(key) for key in keys)
        return slots, tuple(self._generations[slot] for slot in slots)

    def value(self, key: BlockKey, stream: str, now: float, last_used_s: float) -> float:
        """What the policy would think of this block, were it here; to compare with what would have to go for it."""
        leaf = Leaf(-1, 0, last_used_s, stream, restore_s=self._restore_s(key, 0))
        return self._policy.value(leaf, now)

    def chain(self, key: BlockKey) -> tuple[BlockKey, ...]:
        """The keys of the chain that ends at a findable block."""
        blocks = self.index.chain(key, self.leaf(key).depth_blocks + 1)
        return tuple(self._name(block) for block in blocks)

    def _name(self, block: BlockId) -> BlockKey:
        key = self.index.key_of(block)
        assert key is not None
        return key

    def _block(self, key: BlockKey) -> BlockId:
        block = self.index.get(key)
        assert block is not None, "not in this tier"
        return block

    # -- holding ---------------------------------------------------------------------------------------------------

    def hold(self, key: BlockKey, last: int | None = None) -> list[BlockId]:
        """The chain that ends at a findable block; nothing of it goes until `let_go` or `unhold`. `last`: so many of
        its blocks only, while the caller keeps those before them."""
        held = self.index.chain(key, self.leaf(key).depth_blocks + 1 if last is None else last)
        self.index.hold(held)
        return held

    def let_go(self, held: Sequence[BlockId], now: float, stream: str | None = None) -> None:
        """`stream`: whose use this was; that of the last block when nobody's in particular."""
        if not held:
            return
        self.index.release(held, now, self.index.stream_of(held[-1]) if stream is None else stream)
        if self._condemned:
            self._supersede_free(held)

    def unhold(self, held: Sequence[BlockId]) -> None:
        """`let_go` of what was only kept in place, which is no use of it."""
        self.index.unhold(held)
        if self._condemned:
            self._supersede_free(held)

    def touch(self, keys: Sequence[BlockKey], stream: str, now: float) -> None:
        """A use by `stream`: what there is of a chain counts as used now."""
        found = self.match(keys)
        if found:
            held = self.hold(keys[found - 1])
            for block in held if self._condemned else ():
                self._condemned.pop(block, None)
            self.let_go(held, now, stream)
        for key in keys[found:] if self._coming else ():
            if (filling := self._coming.get(key)) is not None:
                filling.unwanted = False

    def condemn(self, keys: Sequence[BlockKey], stream: str) -> None:
        """`stream` will not want these consecutive blocks again: unless others used them since, they go first."""
        index, refs = self.index, self.pool.refs
        index.supersede(keys, stream)
        for key in keys:
            block = index.get(key)
            filling = self._coming.get(key)
            if block is not None:
                if refs[block] and index.stream_of(block) == stream:
                    self._condemned[block] = (key, stream)
            elif filling is not None and filling.stream == stream:
                filling.unwanted = True

    def _supersede_free(self, blocks: Sequence[BlockId]) -> None:
        by_stream: dict[str, list[BlockKey]] = {}
        for block in blocks:
            if block in self._condemned and not self.pool.refs[block]:
                key, stream = self._condemned.pop(block)
                if self.index.get(key) == block:
                    by_stream.setdefault(stream, []).append(key)
        for stream, keys in by_stream.items():
            self.index.supersede(keys, stream)

    # -- making room and filling it --------------------------------------------------------------------------------

    def make_room(self, short: int, now: float, *, worth: float = inf, under: BlockKey = b"") -> list[BlockKey]:
        """Evict at least `short` blocks, as far as they can go and the policy values them at no more than `worth`.

        `under`: the block that what comes will follow; it stays, with its chain, as do those that what is on its way
        follows: else that would have come for nothing. Returns the keys that went.
        """
        if short <= 0:
            return []
        while under in self._coming:
            under = self._coming[under].parent
        held = self.hold(under) if self.index.get(under) is not None else []
        followed = dict.fromkeys(filling.parent for filling in self._coming.values())
        kept = [self.hold(key) for key in followed if self.index.get(key) is not None]
        count = min(max(short, self._ahead), self.index.num_unused)
        gone = self.index.evict(count, now, None, worth) if count else []
        for chain in kept:
            self.unhold(chain)
        self.let_go(held, now)
        return gone

    def fill(self, key: BlockKey, parent: BlockKey, stream: str) -> Filling:
        """A free slot for a block that is about to come. To be answered by `landed` or `fail`."""
        slot = self.pool.take()
        self._last_generation += 1
        self._generations[slot] = self._last_generation
        stays = self.expects(parent) and self.index.get(key) is None and key not in self._coming
        filling = Filling(key, parent, slot, self._last_generation, stream, stays)
        self._filling[slot] = filling
        if stays:
            self._coming[key] = filling
        self.most_used = max(self.most_used, slot + 1)
        return filling

    def put(self, key: BlockKey, parent: BlockKey, stream: str) -> BlockId:
        """A block that is there already, in a free slot; held by the caller."""
        slot = self.pool.take()
        self.index.insert(key, slot, self._block(parent) if parent else None, COMPUTED, stream)
        self.recovered_blocks += 1
        return slot

    def landed(self, fillings: Iterable[Filling], now: float) -> tuple[list[BlockKey], list[BlockKey]]:
        """Their bytes are there. Returns the keys that became findable, what had waited for these among them, and those
        that cannot, now or later: what they should follow went meanwhile."""
        found: dict[str, list[BlockId]] = {}
        unwanted: dict[str, list[BlockKey]] = {}
        arrived: list[BlockKey] = []
        lost: list[BlockKey] = []
        todo = deque(fillings)
        while todo:
            filling = todo.popleft()
            key, parent = filling.key, filling.parent
            if not filling.stays:
                self._free(filling)
            elif filling.doomed:
                lost += self._give_up(filling)
            elif parent and parent in self._coming:
                self._waiting.setdefault(parent, []).append(filling)
            elif parent and self.index.get(parent) is None:
                lost += self._give_up(filling)
            else:
                del self._coming[key], self._filling[filling.slot]
                self.index.insert(key, filling.slot, self._block(parent) if parent else None, COMPUTED, filling.stream)
                arrived.append(key)
                found.setdefault(filling.stream, []).append(filling.slot)
                if filling.unwanted:
                    unwanted.setdefault(filling.stream, []).append(key)
                todo.extend(self._waiting.pop(key, ()))
        for stream, blocks in found.items():
            self.index.release(blocks, now, stream)
        for stream, keys in unwanted.items():
            self.index.supersede(keys, stream)
        return arrived, lost

    def fail(self, fillings: Iterable[Filling]) -> list[BlockKey]:
        """Their bytes did not come. Returns the keys of those that had waited for them and are given up too."""
        lost: list[BlockKey] = []
        for filling in fillings:
            if filling.stays:
                lost += self._give_up(filling)[1:]
            else:
                self._free(filling)
        return lost

    def _give_up(self, filling: Filling) -> list[BlockKey]:
        """The keys of it and of those that wait for it."""
        gone: list[BlockKey] = []
        todo = [filling]
        while todo:
            filling = todo.pop()
            gone.append(filling.key)
            del self._coming[filling.key]
            self._free(filling)
            todo += self._waiting.pop(filling.key, ())
        return gone

    def _free(self, filling: Filling) -> None:
        del self._filling[filling.slot]
        self.pool.refs[filling.slot] -= 1
        self.pool.give_back(filling.slot)

    def forget(self, key: BlockKey) -> list[BlockKey]:
        """This block is bad: it goes, with all that follow it. Returns their keys. Holders keep the slots."""
        block = self.index.get(key)
        if block is None:
            return []
        gone = [self._name(b) for b in self.index.subtree(block)]
        self.index.forget([block])
        self.forgotten_blocks += len(gone)
        return gone

    def forget_all(self, reason: str) -> None:
        """What it was in has gone. What is on its way is not part of it, and finds nothing to follow."""
        count = 0
        while (key := self.index.any_key()) is not None:
            count += len(self.forget(key))
        self.failed[reason] += count

    def distrust(self, keys: Sequence[BlockKey]) -> list[BlockKey]:
        """These consecutive blocks are wrong, here or on their way. Returns the keys that went."""
        for key in keys:
            if (filling := self._coming.get(key)) is not None:
                filling.doomed = True
        gone = self.forget(keys[0]) if keys else []
        self.failed["differs"] += len(gone)
        return gone

    # -- checking --------------------------------------------------------------------------------------------------

    def check(self, held: Iterable[BlockId]) -> None:
        """`held`: every block once per holder other than those being filled."""
        self.index.check()
        self.pool.check([*held, *self._filling], self.index.indexed_blocks())
        assert {f.key: f for f in self._filling.values() if f.stays} == self._coming, "on its way and unknown"
        for slot, filling in self._filling.items():
            assert slot == filling.slot and self.index.key_of(slot) is None, "a slot with two owners"
            assert self._generations[slot] == filling.generation, "a slot was given away while it is filled"
        for key in self._coming:
            assert self.index.get(key) is None, "findable and on its way"
        for parent, waiting in self._waiting.items():
            assert waiting and parent in self._coming, "waits for what does not come"
            assert all(f.parent == parent and self._coming[f.key] is f for f in waiting)
        assert all(self.pool.refs[block] for block in self._condemned), "condemned and free"
        came = self.stored_blocks + self.promoted_blocks + self.recovered_blocks
        assert came - self.forgotten_blocks - self.index.num_evicted == len(self.index), "the counts do not add up"
