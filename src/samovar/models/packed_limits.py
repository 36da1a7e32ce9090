"""Which models the packed ops can run. No torch."""

from __future__ import annotations

from samovar.kernels.packed_ops import SWIGLU_COLUMNS, TILE_TOKENS
from samovar.spec.model import ModelSpec

HEAD_DIM_UNIT = 32
LARGEST_HEAD_DIM = 256
MOST_HEADS_PER_KV_HEAD = 16


def packed_misfit(spec: ModelSpec, block_tokens: int) -> str | None:
    """The number that is in the way, in words; None when the model runs."""
    group = spec.num_heads // spec.num_kv_heads
    if spec.head_dim % HEAD_DIM_UNIT or spec.head_dim > LARGEST_HEAD_DIM:
        return (
            f"the head dimension is {spec.head_dim}; it must be a multiple of {HEAD_DIM_UNIT}, at most"
            f" {LARGEST_HEAD_DIM}"
        )
    if block_tokens % TILE_TOKENS:
        return f"--block-size is {block_tokens}; it must be a multiple of {TILE_TOKENS}"
    if spec.intermediate_size % SWIGLU_COLUMNS:
        return f"the intermediate size is {spec.intermediate_size}; it must be a multiple of {SWIGLU_COLUMNS}"
    if group > MOST_HEADS_PER_KV_HEAD:
        return f"{group} query heads share a KV head; at most {MOST_HEADS_PER_KV_HEAD} may"
    return None
