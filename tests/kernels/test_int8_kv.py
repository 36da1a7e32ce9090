"""KV in 8 bits: what is kept of a token, attention over it on every instruction set against the reference, and the same
bits for a row alone, among others, and whatever lies behind its context."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
from numpy.typing import NDArray
import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels

from samovar.kernels.packed_ops import TILE_TOKENS, PackedOps
from samovar.kernels.ref.tiled_attention import read_kv
from samovar.kernels.rows import Rows, make_rows
from samovar.kernels.table import PACKED_REFERENCE as REFERENCE

pytestmark = pytest.mark.torch
Array = NDArray[np.float32]
CLOSE = 1e-3
"""Of the largest output: the kernels' exponential is good to 1e-4, and they keep 15 bits of queries and weights."""


@pytest.fixture(scope="module", params=["reference", *native_levels()])
def ops(request: pytest.FixtureRequest) -> PackedOps:
    return REFERENCE if request.param == "reference" else native(request.param)


def pools(num_blocks: int, block_tokens: int, kv_heads: int, head_dim: int, garbage: int) -> list[NDArray[np.uint8]]:
    """Keys and values, every byte `garbage`: 255 makes NaN of the scales."""
    shape = (num_blocks, block_tokens // TILE_TOKENS, kv_heads, TILE_TOKENS * head_dim + 64)
    return [np.full(shape, garbage, dtype=np.uint8) for _ in range(2)]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


SHAPES = st.tuples(st.integers(1, 3), st.sampled_from([32, 64, 96, 256]))


@settings(max_examples=25, deadline=None)
@given(shape=SHAPES, block_tokens=st.sampled_from([16, 48]), seed=st.integers(0, 999))
def test_what_is_kept_of_a_token(ops: PackedOps, shape: tuple[int, int], block_tokens: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    own, other = (pools(3, block_tokens, *shape, 0x99) for _ in range(2))
    slots = rng.permutation(3 * block_tokens)[: rng.integers(1, 40)].astype(np.int64)
    wide = normal(rng, len(slots), 2 * shape[0] + 1, shape[1]) * np.exp(normal(rng, len(slots), 1, 1) * 3)
    wide[0, 0] = 0
    k, v = wide[:, : shape[0]], wide[:, shape[0] : 2 * shape[0]]
    ops.write_kv(*own, slots, k, v)
    for at in rng.permutation(len(slots)):  # one by one, in another order
        REFERENCE.write_kv(*other, slots[at : at + 1], k[at : at + 1], v[at : at + 1])
    assert all(np.array_equal(a, b) for a, b in zip(own, other, strict=True))
    for kept, given_ in zip(read_kv(*own, slots), (k, v), strict=True):
        half_step = np.abs(given_).max(-1, keepdims=True) / 254
        assert (np.abs(kept - given_) <= half_step * 1.0001).all()
    untouched = np.setdiff1d(np.arange(3 * block_tokens), slots)
    fresh = pools(3, block_tokens, *shape, 0x99)
    for kept, before in zip(read_kv(*own, untouched), read_kv(*fresh, untouched), strict=True):
        assert np.array_equal(kept, before)


CHUNKS = st.lists(
    st.integers(1, 700).flatmap(lambda context: st.tuples(st.just(context), st.integers(1, min(context, 40)))),
    min_size=1,
    max_size=4,
)


def written(
    chunks: list[tuple[int, int]], kv_heads: int, head_dim: int, garbage: int, rng: np.random.Generator
) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.int64]]]:
    """Pools that hold each row's context, (context, tokens in the step), in scattered blocks."""
    needed = [-(-context // 16) for context, _ in chunks]
    own = pools(sum(needed) + 2, 16, kv_heads, head_dim, garbage)
    order = rng.permutation(sum(needed) + 2).astype(np.int64)
    tables = [np.ascontiguousarray(part) for part in np.split(order, np.cumsum(needed))[:-1]]
    for (context, _), table in zip(chunks, tables, strict=True):
        at = np.arange(context)
        k, v = (normal(rng, context, kv_heads, head_dim) for _ in range(2))
        REFERENCE.write_kv(*own, table[at // 16] * 16 + at % 16, k, v)
    return own, tables


def rows_of(chunks: list[tuple[int, int]], tables: list[NDArray[np.int64]]) -> Rows:
    return make_rows([count for _, count in chunks], [c - count for c, count in chunks], tables, 16)


@settings(max_examples=20, deadline=None)
@given(chunks=CHUNKS, shape=SHAPES, group=st.sampled_from([1, 3, 4, 16]), seed=st.integers(0, 999))
def test_attention(
    ops: PackedOps, chunks: list[tuple[int, int]], shape: tuple[int, int], group: int, seed: int
) -> None:
    kv_heads, head_dim = shape
    own, tables = written(chunks, kv_heads, head_dim, 0xFF, np.random.default_rng(seed))
    tokens = sum(count for _, count in chunks)
    q = normal(np.random.default_rng(seed + 1), tokens, group * kv_heads + 2, head_dim)[:, : group * kv_heads] * 2
    got, wanted = (np.zeros(q.shape, dtype=np.float32) for _ in range(2))
    ops.attention(q, *own, rows_of(chunks, tables), head_dim**-0.5, got)
    REFERENCE.attention(q, *own, rows_of(chunks, tables), head_dim**-0.5, wanted)
    assert np.isfinite(got).all()
    assert np.abs(got - wanted).max() <= CLOSE * max(1.0, float(np.abs(wanted).max()))
    if ops is REFERENCE:
        return
    # The last token of the last row alone, on one thread, over a copy with other garbage behind its context.
    clean, same_tables = written(chunks, kv_heads, head_dim, 0x11, np.random.default_rng(seed))
    alone = np.zeros((1, *q.shape[1:]), dtype=np.float32)
    row = make_rows([1], [chunks[-1][0] - 1], same_tables[-1:], 16)
    native(ops.name, 1).attention(q[-1:], *clean, row, head_dim**-0.5, alone)
    assert np.array_equal(alone, got[-1:])


def test_pools_that_are_none_are_refused() -> None:
    if not [level for level in native_levels() if isinstance(level, str)]:
        pytest.skip("this installation has no native kernels")
    ops = native("scalar")
    slots, k = np.zeros(1, dtype=np.int64), np.zeros((1, 2, 32), dtype=np.float32)
    keys, values = pools(1, 16, 2, 32, 0)
    for bad in (
        (keys[..., :-64].copy(), values[..., :-64].copy()),
        (keys, values[..., :-16].copy()),
        (keys[..., ::2], values[..., ::2]),
        (keys, values.view(np.int8)),
        (keys.reshape(-1), values.reshape(-1)),
    ):
        with pytest.raises(ValueError, match=r"keys|values|head_dim"):
            ops.write_kv(*bad, slots, k, k)  # type: ignore[arg-type]
