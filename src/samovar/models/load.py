"""From a checkpoint on disk to a model and its cache."""

from __future__ import annotations

from contextlib import AbstractContextManager
import math

import torch

from samovar.kernels.cpu.pages import zeroed
from samovar.kernels.packed_ops import TILE_TOKENS, KVTiles, PackedOps
from samovar.kernels.table import CPU, Ops
from samovar.models.batch import KVCache
from samovar.models.checkpoint import Checkpoint
from samovar.models.gguf_weights import open_gguf_weights
from samovar.models.hf_weights import open_hf_weights
from samovar.models.llama import LlamaModel
from samovar.models.mono import MonoLlama
from samovar.models.packed_llama import PackedLlama
from samovar.models.packed_weights import assemble_packed
from samovar.models.weights import TensorSource, assemble
from samovar.spec.dtype import KV_SCALE_BYTES, DTypeName, KVDTypeName, Quantization
from samovar.spec.model import ModelSpec

Model = LlamaModel | PackedLlama | MonoLlama
"""What a runner runs: `spec`, and `forward(batch, cache)` over a cache made for it."""

TORCH_DTYPES: dict[DTypeName, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(checkpoint: Checkpoint, dtype: DTypeName, ops: Ops = CPU) -> LlamaModel:
    """Reads every weight once. Raises CheckpointError or UnsupportedFeature, naming file and tensor."""
    with _opened(checkpoint) as source:
        weights = assemble(checkpoint.spec, source, TORCH_DTYPES[dtype])
    return LlamaModel(checkpoint.spec, weights, ops)


def load_packed_model(
    checkpoint: Checkpoint, ops: PackedOps, quantization: Quantization, max_positions: int
) -> PackedLlama:
    """As `load_model`. `packed_misfit` must have found nothing to say against the model."""
    with _opened(checkpoint) as source:
        weights = assemble_packed(checkpoint.spec, source, ops, quantization)
    return PackedLlama(checkpoint.spec, weights, ops, max_positions)


def _opened(checkpoint: Checkpoint) -> AbstractContextManager[TensorSource]:
    if checkpoint.header is not None:
        return open_gguf_weights(checkpoint.path, checkpoint.header, checkpoint.spec)
    return open_hf_weights(checkpoint.path)


def new_cache(spec: ModelSpec, num_blocks: int, block_tokens: int, dtype: DTypeName) -> KVCache:
    """An empty pool. Its memory is address space until a slot is first written, and holds garbage until then."""
    shape = (num_blocks, block_tokens, spec.num_kv_heads, spec.head_dim)

    def pools() -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(shape, dtype=TORCH_DTYPES[dtype]) for _ in range(spec.num_layers))

    return KVCache(pools(), pools(), block_tokens)


def new_tiled_cache(spec: ModelSpec, num_blocks: int, block_tokens: int, dtype: KVDTypeName = "bfloat16") -> KVCache:
    """An empty pool for the packed ops, "bfloat16" or "int8". Zeroed pages are address space until they are written."""
    tiles = (num_blocks, block_tokens // TILE_TOKENS, spec.num_kv_heads)
    element = torch.uint8 if dtype == "int8" else torch.bfloat16

    def pools(*tile: int) -> tuple[torch.Tensor, ...]:
        shape = (*tiles, *tile)
        num_bytes = math.prod(shape) * element.itemsize
        return tuple(torch.from_numpy(zeroed(num_bytes)).view(element).view(shape) for _ in range(spec.num_layers))

    if dtype == "int8":
        keys, values = (pools(TILE_TOKENS * (spec.head_dim + KV_SCALE_BYTES)) for _ in range(2))
    else:
        keys = pools(spec.head_dim // 2, TILE_TOKENS, 2)
        values = pools(TILE_TOKENS // 2, spec.head_dim, 2)
    pairs = tuple((_as_numpy(k), _as_numpy(v)) for k, v in zip(keys, values, strict=True))
    return KVCache(keys, values, block_tokens, pairs)


def _as_numpy(pool: torch.Tensor) -> KVTiles:
    """The same memory: numpy knows no bfloat16."""
    array: KVTiles = (pool if pool.dtype == torch.uint8 else pool.view(torch.uint16)).numpy()
    return array
