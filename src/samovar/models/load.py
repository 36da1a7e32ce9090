"""From a checkpoint on disk to a model and its cache."""

from __future__ import annotations

import torch

from samovar.kernels.table import CPU, Ops
from samovar.models.batch import KVCache
from samovar.models.checkpoint import Checkpoint
from samovar.models.gguf_weights import open_gguf_weights
from samovar.models.hf_weights import open_hf_weights
from samovar.models.llama import LlamaModel
from samovar.models.weights import assemble
from samovar.spec.dtype import DTypeName
from samovar.spec.model import ModelSpec

TORCH_DTYPES: dict[DTypeName, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(checkpoint: Checkpoint, dtype: DTypeName, ops: Ops = CPU) -> LlamaModel:
    """Reads every weight once. Raises CheckpointError or UnsupportedFeature, naming file and tensor."""
    spec = checkpoint.spec
    if checkpoint.header is not None:
        opened = open_gguf_weights(checkpoint.path, checkpoint.header, spec)
    else:
        opened = open_hf_weights(checkpoint.path)
    with opened as source:
        weights = assemble(spec, source, TORCH_DTYPES[dtype])
    return LlamaModel(spec, weights, ops)


def new_cache(spec: ModelSpec, num_blocks: int, block_tokens: int, dtype: DTypeName) -> KVCache:
    """An empty pool. Its memory is address space until a slot is first written, and holds garbage until then."""
    shape = (num_blocks, block_tokens, spec.num_kv_heads, spec.head_dim)

    def tensors() -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(shape, dtype=TORCH_DTYPES[dtype]) for _ in range(spec.num_layers))

    return KVCache(keys=tensors(), values=tensors())
