"""From a checkpoint on disk to a model and its cache."""

from __future__ import annotations

from typing import Literal

import torch

from samovar.base.errors import ConfigError
from samovar.kernels.table import CPU, Ops
from samovar.models.batch import KVCache
from samovar.models.checkpoint import Checkpoint
from samovar.models.gguf_weights import open_gguf_weights
from samovar.models.hf_weights import open_hf_weights
from samovar.models.llama import LlamaModel
from samovar.models.weights import assemble
from samovar.spec.gguf_file import read_gguf_header
from samovar.spec.model import ModelSpec

DTypeName = Literal["float32", "bfloat16"]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(checkpoint: Checkpoint, dtype: DTypeName, ops: Ops = CPU) -> LlamaModel:
    """Reads every weight once. Raises CheckpointError or UnsupportedFeature, naming file and tensor."""
    spec = checkpoint.spec
    if checkpoint.format == "gguf":
        with open_gguf_weights(checkpoint.path, read_gguf_header(checkpoint.path), spec) as source:
            weights = assemble(spec, source, torch_dtype(dtype))
    else:
        with open_hf_weights(checkpoint.path) as source:
            weights = assemble(spec, source, torch_dtype(dtype))
    return LlamaModel(spec, weights, ops)


def new_cache(spec: ModelSpec, num_blocks: int, block_tokens: int, dtype: DTypeName) -> KVCache:
    """An empty pool. Its memory is address space until a slot is first written, and holds garbage until then."""
    shape = (num_blocks, block_tokens, spec.num_kv_heads, spec.head_dim)

    def tensors() -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(shape, dtype=torch_dtype(dtype)) for _ in range(spec.num_layers))

    return KVCache(keys=tensors(), values=tensors())


def torch_dtype(name: str) -> torch.dtype:
    if name not in _DTYPES:
        raise ConfigError(f"dtype {name!r} is not supported; supported: {', '.join(_DTYPES)}", param="dtype")
    return _DTYPES[name]
