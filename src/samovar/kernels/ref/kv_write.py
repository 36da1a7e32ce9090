"""Puts a step's K and V into the block pool."""

from __future__ import annotations

from torch import Tensor


def write_kv(keys: Tensor, values: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """keys, values [num_blocks, block_tokens, Hkv, D], contiguous, written at `slots` [T] int64; k, v [T, Hkv, D]."""
    keys.view(-1, *keys.shape[2:]).index_copy_(0, slots, k)
    values.view(-1, *values.shape[2:]).index_copy_(0, slots, v)
