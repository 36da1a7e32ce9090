"""A cache of the real pool and index under a policy, as tests use it: turns that take time, or none."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.base.ids import BlockId
from samovar.core.block_pool import BlockPool
from samovar.core.prefix_index import COMPUTED, PrefixIndex
from samovar.policy.retention import Leaf, RetentionPolicy, TurnEnd, TurnStart

Key = bytes


def keys_of(name: str, count: int) -> list[Key]:
    """A chain of its own for every name."""
    return [f"{name}:{at}".encode() for at in range(count)]


class Room:
    """Turns of streams in a pool of `capacity` blocks."""

    def __init__(self, capacity: int, policy: RetentionPolicy) -> None:
        self.policy = policy
        self.pool = BlockPool(capacity)
        self.index = PrefixIndex(self.pool, policy)
        self._last: dict[str, list[Key]] = {}
        self._held: dict[str, list[BlockId]] = {}

    def begin(self, stream: str, keys: Sequence[Key], now: float, parent: str = "") -> int:
        """Returns how many blocks were found. The rest are computed, after what must go for them has gone."""
        before = self._last.get(stream, [])
        common = next((at for at, (a, b) in enumerate(zip(before, keys, strict=False)) if a != b), None)
        common = min(len(before), len(keys)) if common is None else common
        self.index.supersede(before[common:], stream)
        hit = self.index.match(keys, 0, len(keys))
        self.policy.turn_started(TurnStart(stream, parent, len(keys), hit), now)
        blocks = self.index.chain(keys[hit - 1], hit) if hit else []
        self.index.hold(blocks)
        short = len(keys) - hit - self.pool.num_free
        if short > 0:
            self.index.evict(short, now, None)
        held: BlockId | None = blocks[-1] if blocks else None
        for key, block in zip(keys[hit:], self.pool.take_many(len(keys) - hit), strict=True):
            self.index.insert(key, block, held, COMPUTED, stream)
            blocks.append(block)
            held = block
        self._last[stream] = list(keys)
        self._held[stream] = blocks
        return hit

    def end(self, stream: str, now: float, reason: str = "", tools: tuple[str, ...] = ()) -> None:
        blocks = self._held.pop(stream)
        self.policy.turn_ended(TurnEnd(stream, len(blocks), reason, tools), now)
        self.index.release(blocks, now, stream)

    def turn(self, stream: str, keys: Sequence[Key], now: float, reason: str = "", parent: str = "") -> int:
        """One that takes no time."""
        hit = self.begin(stream, keys, now, parent)
        self.end(stream, now, reason)
        return hit

    def has(self, keys: Sequence[Key]) -> int:
        """Leading blocks that are there."""
        return self.index.match(keys, 0, len(keys))

    def check(self) -> None:
        self.index.check()
        self.pool.check([b for blocks in self._held.values() for b in blocks], self.index.indexed_blocks())


def leaf(stream: str, last_used_s: float, *, superseded: bool = False, restore_s: float = 1.0) -> Leaf:
    return Leaf(0, 0, last_used_s, stream, superseded, restore_s)
