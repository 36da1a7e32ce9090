"""Row plans: every position once, in order, at the slot the table says, and no long run copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")

from samovar.kernels.rows import GATHER_TOKENS, VIEW_TOKENS, RowPlan, plan_row

pytestmark = pytest.mark.torch


def slots_of(plan: RowPlan) -> list[int]:
    slots: list[int] = []
    for piece in plan.pieces:
        own = range(piece.slot, piece.slot + piece.num_tokens) if piece.gather is None else piece.gather.tolist()
        assert len(own) == piece.num_tokens and piece.start == len(slots)
        slots.extend(own)
    return slots


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    """Block table of random runs, block_tokens, context, chunk."""
    block_tokens = draw(st.sampled_from([1, 3, 16, 64, 300]))
    runs = draw(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), min_size=1, max_size=20))
    blocks = [block for first, length in runs for block in range(first, first + length)]
    context = draw(st.integers(1, len(blocks) * block_tokens))
    return blocks, block_tokens, context, draw(st.integers(1, context))


@given(tables())
def test_pieces_are_the_context(table: tuple[list[int], int, int, int]) -> None:
    blocks, block_tokens, context, chunk = table
    plan = plan_row(5, chunk, context, np.array(blocks), block_tokens)
    assert (plan.first, plan.num_tokens, plan.start) == (5, chunk, context - chunk)
    wanted = [blocks[p // block_tokens] * block_tokens + p % block_tokens for p in range(context)]
    assert slots_of(plan) == wanted
    for piece in plan.pieces:
        crosses = piece.start < plan.start < piece.start + piece.num_tokens
        assert chunk == 1 or not crosses
        if piece.gather is not None:
            assert piece.num_tokens <= GATHER_TOKENS
            steps = piece.gather.diff().tolist()
            longest = max(len(run) for run in "".join("1" if s == 1 else " " for s in steps).split(" ")) + 1
            assert longest < VIEW_TOKENS


def test_a_contiguous_prefix_is_one_view() -> None:
    plan = plan_row(0, 1, 100_000, np.arange(7, 7 + 6250), 16)
    assert [(p.start, p.num_tokens, p.slot, p.gather) for p in plan.pieces] == [(0, 100_000, 112, None)]
    plan = plan_row(0, 512, 100_000, np.arange(7, 7 + 6250), 16)
    assert [(p.start, p.num_tokens) for p in plan.pieces] == [(0, 99_488), (99_488, 512)]
    assert all(piece.gather is None for piece in plan.pieces)


def test_a_plan_keeps_nothing_of_the_table() -> None:
    table = np.array([5, 9, 2, 3, 4, 20])
    plan = plan_row(0, 3, 90, table, 16)
    wanted = slots_of(plan)
    table[:] = 0
    assert slots_of(plan) == wanted
