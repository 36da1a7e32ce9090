"""Paged attention of every table column against dense attention over the gathered context, in float64."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor

from samovar.kernels.rows import RowPlan, plan_row
from samovar.kernels.table import CPU, REFERENCE, Ops

pytestmark = pytest.mark.torch


def dense(q: Tensor, keys: Tensor, values: Tensor, blocks: list[int], context: int, scale: float) -> Tensor:
    """q [L, H, D], the last query at position context - 1 -> [L, H, D] float64."""
    table = torch.tensor(blocks)
    k = keys[table].flatten(0, 1)[:context].double().repeat_interleave(q.shape[1] // keys.shape[2], 1)
    v = values[table].flatten(0, 1)[:context].double().repeat_interleave(q.shape[1] // keys.shape[2], 1)
    scores = torch.einsum("lhd,nhd->hln", q.double() * scale, k)
    position = torch.arange(context - q.shape[0], context)
    scores.masked_fill_(torch.arange(context) > position[:, None], -math.inf)
    return torch.einsum("hln,nhd->lhd", scores.softmax(-1), v)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int, int, list[tuple[int, int, bool]], int]:
    block_tokens = draw(st.sampled_from([1, 2, 7, 16, 64]))
    kv_heads, groups = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    head_dim = draw(st.sampled_from([2, 6, 16, 64, 80]))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        context = draw(st.one_of(st.integers(1, 40), st.integers(1, 600)))
        chunk = draw(st.one_of(st.just(1), st.integers(1, context)))
        rows.append((context, chunk, draw(st.booleans())))
    return block_tokens, kv_heads, groups, head_dim, rows, draw(st.integers(0, 2**31))


def build(
    block_tokens: int, kv_heads: int, head_dim: int, rows: list[tuple[int, int, bool]], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[RowPlan], list[list[int]]]:
    """A pool that is NaN wherever no row's context lies; scattered rows have blocks in random order."""
    needed = [-(-context // block_tokens) for context, _, _ in rows]
    order, tables, at = torch.randperm(sum(needed) + 5).tolist(), [], 0
    for count, (_, _, scattered) in zip(needed, rows, strict=True):
        own = order[at : at + count]
        tables.append(own if scattered else list(range(sum(needed) + 5 + at, sum(needed) + 5 + at + count)))
        at += count
    shape = (2 * (sum(needed) + 5), block_tokens, kv_heads, head_dim)
    keys, values = torch.full(shape, math.nan, dtype=dtype), torch.full(shape, math.nan, dtype=dtype)
    plans, first = [], 0
    for (context, chunk, _), table in zip(rows, tables, strict=True):
        used = torch.tensor([table[p // block_tokens] * block_tokens + p % block_tokens for p in range(context)])
        for pool in (keys, values):
            pool.view(-1, kv_heads, head_dim)[used] = torch.randn(context, kv_heads, head_dim).to(dtype)
        plans.append(plan_row(first, chunk, context, np.array(table), block_tokens))
        first += chunk
    return keys, values, plans, tables


@pytest.mark.parametrize("ops", [REFERENCE, CPU], ids=["reference", "cpu"])
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_equals_dense_attention(ops: Ops, case: tuple[int, int, int, int, list[tuple[int, int, bool]], int]) -> None:
    block_tokens, kv_heads, groups, head_dim, rows, seed = case
    torch.manual_seed(seed)
    keys, values, plans, tables = build(block_tokens, kv_heads, head_dim, rows, torch.float32)
    # a slice of something wider, as the model passes it
    q = torch.randn(sum(chunk for _, chunk, _ in rows), kv_heads * groups + 1, head_dim)[:, :-1] * 3
    scale = head_dim**-0.5
    out = ops.paged_attention(q, keys, values, plans, scale)
    assert out.dtype == torch.float32 and out.shape == q.shape
    for plan, table in zip(plans, tables, strict=True):
        at = slice(plan.first, plan.first + plan.num_tokens)
        wanted = dense(q[at], keys, values, table, plan.start + plan.num_tokens, scale)
        # float32 sums of at most 600 terms whose weights add up to 1, scores up to about 30
        torch.testing.assert_close(out[at].double(), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("ops", [REFERENCE, CPU], ids=["reference", "cpu"])
@pytest.mark.parametrize("scattered", [False, True])
def test_bfloat16_and_contexts_longer_than_a_tile(ops: Ops, scattered: bool) -> None:
    torch.manual_seed(0)
    rows = [(2500, 1, scattered), (2300, 40, scattered)]
    keys, values, plans, tables = build(16, 2, 32, rows, torch.bfloat16)
    q = torch.randn(41, 6, 32, dtype=torch.bfloat16)
    out = ops.paged_attention(q, keys, values, plans, 32**-0.5)
    assert out.dtype == torch.bfloat16
    for plan, table in zip(plans, tables, strict=True):
        at = slice(plan.first, plan.first + plan.num_tokens)
        wanted = dense(q[at], keys, values, table, plan.start + plan.num_tokens, 32**-0.5)
        # outputs are about 0.05; bfloat16 keeps 8 bits of them and of the weights
        torch.testing.assert_close(out[at].double(), wanted, atol=2e-3, rtol=2e-2)


@pytest.mark.parametrize("ops", [REFERENCE, CPU], ids=["reference", "cpu"])
def test_a_cached_prefix_is_not_copied(ops: Ops) -> None:
    """No temporary of the prefix's size: what is allocated beside the result stays far below K's bytes."""
    torch.manual_seed(0)
    keys, values, plans, _ = build(16, 2, 64, [(20_000, 1, False)], torch.float32)
    q = torch.randn(1, 4, 64)
    with torch.profiler.profile(profile_memory=True) as profile:
        ops.paged_attention(q, keys, values, plans, 0.125)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest < 20_000 * 2 * 64 * 4 / 8
