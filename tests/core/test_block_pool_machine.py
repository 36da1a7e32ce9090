"""The block pool against a model that is nothing but a count per block."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
import pytest

from samovar.core.block_pool import BlockPool

MOST = 9


class BlockPoolMachine(RuleBasedStateMachine):
    """`refs`: holders per block; `kept`: blocks the index would keep. A block is free when it is in neither."""

    @initialize(num_blocks=st.integers(1, MOST))
    def start(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.refs = dict.fromkeys(range(num_blocks), 0)
        self.kept: set[int] = set()

    def free(self) -> set[int]:
        return {block for block, count in self.refs.items() if not count and block not in self.kept}

    def pick(self, blocks: list[int], at: int) -> int | None:
        return blocks[at % len(blocks)] if blocks else None

    @precondition(lambda self: self.free())
    @rule()
    def take(self) -> None:
        free = self.free()
        block = self.pool.take()
        assert block in free
        self.refs[block] = 1

    @rule(count=st.integers(0, MOST))
    def take_many(self, count: int) -> None:
        free = self.free()
        count = min(count, len(free))
        blocks = self.pool.take_many(count)
        assert len(blocks) == len(set(blocks)) == count and free.issuperset(blocks)
        self.refs.update(dict.fromkeys(blocks, 1))

    @rule(at=st.integers(0, MOST))
    def hold(self, at: int) -> None:
        block = self.pick([b for b in self.refs if b not in self.free()], at)
        if block is not None:
            self.pool.refs[block] += 1
            self.refs[block] += 1

    @rule(at=st.integers(0, MOST), keep=st.booleans())
    def release(self, at: int, keep: bool) -> None:
        """One holder less; the last one gives the block back, or leaves it to the index."""
        block = self.pick([b for b, count in self.refs.items() if count], at)
        if block is None:
            return
        self.pool.refs[block] -= 1
        self.refs[block] -= 1
        if keep:
            self.kept.add(block)
        if block in self.free():
            self.pool.give_back(block)

    @rule(at=st.integers(0, MOST))
    def evict(self, at: int) -> None:
        block = self.pick([b for b in sorted(self.kept) if not self.refs[b]], at)
        if block is not None:
            self.kept.discard(block)
            self.pool.give_back(block)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert self.pool.num_free == len(self.free())
        assert [self.pool.is_free(b) for b in self.refs] == [b in self.free() for b in self.refs]
        self.pool.check([b for b, count in self.refs.items() for _ in range(count)], self.kept)


TestBlockPool = BlockPoolMachine.TestCase
TestBlockPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_fresh_pool_hands_out_one_contiguous_run() -> None:
    pool = BlockPool(8)
    assert pool.take_many(5) == [0, 1, 2, 3, 4]
    assert pool.take() == 5


def test_more_than_is_free_is_our_own_bug() -> None:
    pool = BlockPool(2)
    with pytest.raises(AssertionError):
        pool.take_many(3)
    assert pool.num_free == 2


def test_a_block_is_not_given_back_twice_nor_while_held() -> None:
    pool = BlockPool(2)
    block = pool.take()
    with pytest.raises(AssertionError):
        pool.give_back(block)
    pool.refs[block] = 0
    pool.give_back(block)
    with pytest.raises(AssertionError):
        pool.give_back(block)


@pytest.mark.parametrize(
    ("holders", "kept"),
    [([0], []), ([0, 1, 1], []), ([0, 1], [2]), ([], [0, 1])],
    ids=["miss", "extra", "kept", "none"],
)
def test_check_sees_wrong_counts_and_leaks(holders: list[int], kept: list[int]) -> None:
    pool = BlockPool(3)
    pool.take_many(2)
    with pytest.raises(AssertionError):
        pool.check(holders, kept)
    pool.check([0, 1], [])
