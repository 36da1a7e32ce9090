"""What a model's forward gets: the tokens of one step, and where their KV lies."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from samovar.kernels.packed_ops import KVTiles
from samovar.kernels.rows import Rows


@dataclass(frozen=True, slots=True)
class KVCache:
    """The device pool of one KV group, per layer; a block is the first dimension of every tensor.

    For torch's operators `keys[l]`, `values[l]` are [num_blocks, block_tokens, Hkv, D]. For packed ops they are tiles
    of 16 tokens, [num_blocks, tiles, Hkv, ...] as `KVTiles` says.
    Owned by the runner; a forward writes the slots the batch names and reads the blocks of its rows, nothing else.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    block_tokens: int
    tiles: tuple[tuple[KVTiles, KVTiles], ...] = ()
    """Of a tiled pool: keys and values of each layer, the same memory as numpy arrays."""


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """T tokens of one step, requests one after the other."""

    token_ids: Tensor
    """[T] int64"""
    positions: Tensor
    """[T] int64"""
    slots: Tensor
    """[T] int64: block * block_tokens + offset, where each token's K and V are written before any attention reads."""
    rows: Rows
    """Which tokens are whose, and where each request's context lies."""
    logit_rows: Tensor
    """[S] int64: rows of the batch whose logits are wanted."""
