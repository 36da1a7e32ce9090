"""What a model's forward gets: the tokens of one step, and where their KV lies."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from samovar.kernels.rows import RowPlan


@dataclass(frozen=True, slots=True)
class KVCache:
    """The device pool of one KV group. `keys[l]`, `values[l]`: [num_blocks, block_tokens, num_kv_heads, head_dim].

    Owned by the runner; a forward writes the slots the batch names and reads the blocks of its rows, nothing else.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def block_tokens(self) -> int:
        return int(self.keys[0].shape[1])


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """T tokens of one step, requests one after the other."""

    token_ids: Tensor
    """[T] int64"""
    positions: Tensor
    """[T] int64"""
    slots: Tensor
    """[T] int64: block * block_tokens + offset, where each token's K and V are written before any attention reads."""
    rows: tuple[RowPlan, ...]
    """Where each request's context lies, worked out once for all layers."""
    logit_rows: Tensor
    """[S] int64: rows of the batch whose logits are wanted."""
