"""Attention over a pool of KV tiles, in plain numpy, rounding where the native kernels round.

A context is read in chunks of 256 positions, each with its own softmax; chunks are merged in order. Over bfloat16
queries and probabilities are rounded to bfloat16, and the total of these sums the rounded ones. Over 8 bits nothing is
rounded any more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import TILE_TOKENS, Float32Array, KVTiles
from samovar.kernels.ref import int8_tiles
from samovar.kernels.ref.rounding import from_bf16, to_bf16
from samovar.kernels.rows import Rows

CHUNK_TOKENS = 256


def write_kv(keys: KVTiles, values: KVTiles, slots: NDArray[np.int64], k: Float32Array, v: Float32Array) -> None:
    """As `PackedOps.write_kv`."""
    if keys.dtype == np.uint8:
        int8_tiles.write(keys, values, slots, k, v)
        return
    tiles, offset = slots // TILE_TOKENS, slots % TILE_TOKENS
    flat_keys, flat_values = keys.reshape(-1, *keys.shape[2:]), values.reshape(-1, *values.shape[2:])
    flat_keys[tiles, :, :, offset, :] = to_bf16(k).reshape(*k.shape[:2], -1, 2)
    flat_values[tiles, :, offset // 2, :, offset % 2] = to_bf16(v)


def read_kv(keys: KVTiles, values: KVTiles, slots: NDArray[np.int64]) -> tuple[Float32Array, Float32Array]:
    """K and V [N, Hkv, D] of these slots."""
    if keys.dtype == np.uint8:
        return int8_tiles.read(keys, values, slots)
    keys, values = keys.view(np.uint16), values.view(np.uint16)
    tiles, offset = slots // TILE_TOKENS, slots % TILE_TOKENS
    flat_keys, flat_values = keys.reshape(-1, *keys.shape[2:]), values.reshape(-1, *values.shape[2:])
    k = from_bf16(flat_keys[tiles, :, :, offset, :].reshape(len(slots), keys.shape[2], -1))
    return k, from_bf16(flat_values[tiles, :, offset // 2, :, offset % 2])


def attention(
    q: Float32Array,
    keys: KVTiles,
    values: KVTiles,
    rows: Rows,
    scale: float,
    out: Float32Array,
) -> None:
    """As `PackedOps.attention`."""
    for first, count, start, table in zip(
        rows.firsts.tolist(), rows.counts.tolist(), rows.starts.tolist(), rows.tables, strict=True
    ):
        positions = np.arange(start + count)
        slots = table[positions // rows.block_tokens] * rows.block_tokens + positions % rows.block_tokens
        rounded = keys.dtype != np.uint8
        queries = from_bf16(to_bf16(q[first : first + count])) if rounded else q[first : first + count]
        out[first : first + count] = _row(queries, *read_kv(keys, values, slots), start, scale, rounded)


def _row(q: Float32Array, k: Float32Array, v: Float32Array, start: int, scale: float, rounded: bool) -> Float32Array:
    """q [L, H, D] at positions from `start` on; k, v [start + L, Hkv, D] -> [L, H, D]."""
    num_queries, num_heads, head_dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(num_queries, kv_heads, num_heads // kv_heads, head_dim).transpose(1, 2, 0, 3)
    top = np.full((*grouped.shape[:3], 1), -np.inf, dtype=np.float32)
    total, sums = np.zeros_like(top), np.zeros(grouped.shape, dtype=np.float32)
    at = start + np.arange(num_queries)[:, None]
    for low in range(0, len(k), CHUNK_TOKENS):
        some_k, some_v = (x[low : low + CHUNK_TOKENS].transpose(1, 0, 2)[:, None] for x in (k, v))
        scores = (grouped @ some_k.swapaxes(-1, -2)) * np.float32(scale)
        scores = np.where(low + np.arange(some_k.shape[2]) > at, np.float32(-np.inf), scores)
        chunk_top = scores.max(-1, keepdims=True)
        # A query before the chunk sees nothing of it: its scores are all -inf, its weights 0.
        weights = np.exp(scores - np.where(chunk_top == -np.inf, np.float32(0), chunk_top))
        if rounded:
            weights = from_bf16(to_bf16(weights))
        new_top = np.maximum(top, chunk_top)
        old, new = np.exp(top - new_top), np.exp(chunk_top - new_top)
        total = total * old + weights.sum(-1, keepdims=True) * new
        sums = sums * old + (weights @ some_v) * new
        top = new_top
    return (sums / total).transpose(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim)
