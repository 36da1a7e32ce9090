"""Blocks of one KV group: who holds how many of them, and which are free.

Invariant: a block is free exactly when nothing holds it and the prefix index does not keep it.
Only counts live here; what a block contains is the prefix index's business.
"""

from __future__ import annotations

from collections.abc import Iterable

from samovar.base.ids import BlockId


class BlockPool:
    """`refs[block]` counts holders: requests, transfers and fences. The lists are owned here; others only read them."""

    __slots__ = ("_free", "_is_free", "num_blocks", "refs")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.refs: list[int] = [0] * num_blocks
        # Popped from the end: the lowest ids first, so that a lone prompt gets one contiguous run.
        self._free: list[BlockId] = [BlockId(b) for b in range(num_blocks - 1, -1, -1)]
        self._is_free = bytearray(b"\x01" * num_blocks)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> BlockId:
        """A free block, held once by the caller."""
        block = self._free.pop()
        self._is_free[block] = 0
        self.refs[block] = 1
        return block

    def take_many(self, count: int) -> list[BlockId]:
        assert count <= len(self._free)
        if count == 0:
            return []
        blocks = self._free[-count:]
        del self._free[-count:]
        blocks.reverse()
        refs, is_free = self.refs, self._is_free
        for block in blocks:
            is_free[block] = 0
            refs[block] = 1
        return blocks

    def give_back(self, block: BlockId) -> None:
        """Make a block nobody holds free again."""
        assert self.refs[block] == 0 and not self._is_free[block]
        self._is_free[block] = 1
        self._free.append(block)

    def is_free(self, block: BlockId) -> bool:
        return bool(self._is_free[block])

    def check(self, holders: Iterable[BlockId], kept: Iterable[BlockId]) -> None:
        """`holders`: every block once per holder; `kept`: the blocks of the prefix index."""
        counts = [0] * self.num_blocks
        for block in holders:
            counts[block] += 1
        assert counts == self.refs, "reference counts differ from the holders"
        used = {block for block in range(self.num_blocks) if counts[block]} | set(kept)
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        assert free == set(range(self.num_blocks)) - used, "free blocks differ from those nobody needs"
        assert all(bool(self._is_free[b]) == (b in free) for b in range(self.num_blocks))
