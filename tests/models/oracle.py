"""Tiny random checkpoints, transformers as the oracle, and a driver that runs a model over a paged pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
import transformers

from samovar.kernels.rows import make_rows
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import Model, new_cache, new_tiled_cache
from samovar.models.packed_llama import PackedLlama

SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
}


def save_tiny(
    folder: Path, family: str = "llama", max_shard_size: str = "1GB", **changes: Any
) -> transformers.PreTrainedModel:
    """Every parameter random, biases and norms too, and large enough that logits spread over several units."""
    torch.manual_seed(0)
    config = CONFIGS[family](**(SIZES | {"head_dim": 8} | changes))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model.eval()


@torch.inference_mode()
def oracle_logits(model: transformers.PreTrainedModel, ids: Tensor) -> Tensor:
    """ids [T] -> [T, vocab] float32"""
    logits: Tensor = model(ids[None]).logits[0].float()
    return logits


def nan_cache(model: Model, num_blocks: int, block_tokens: int) -> KVCache:
    """A pool whose garbage would show."""
    if isinstance(model, PackedLlama):
        cache = new_tiled_cache(model.spec, num_blocks, block_tokens)
    else:
        name = "float32" if model.dtype == torch.float32 else "bfloat16"
        cache = new_cache(model.spec, num_blocks, block_tokens, name)
    for pool in (*cache.keys, *cache.values):
        pool.fill_(torch.nan)
    return cache


def batch_of(chunks: Sequence[tuple[Tensor, int, Sequence[int]]], block_tokens: int) -> ForwardBatch:
    """Chunks (token ids, start, block table), one row each; logits of every token."""
    positions, slots = [], []
    for ids, start, blocks in chunks:
        at = torch.arange(start, start + len(ids))
        positions.append(at)
        slots.append(torch.tensor(blocks)[at // block_tokens] * block_tokens + at % block_tokens)
    return ForwardBatch(
        token_ids=torch.cat([ids for ids, _, _ in chunks]),
        positions=torch.cat(positions),
        slots=torch.cat(slots),
        rows=make_rows(
            [len(ids) for ids, _, _ in chunks],
            [start for _, start, _ in chunks],
            [np.array(blocks, dtype=np.int64) for _, _, blocks in chunks],
            block_tokens,
        ),
        logit_rows=torch.arange(sum(len(ids) for ids, _, _ in chunks)),
    )


def run(model: Model, ids: Tensor, chunk: int = 10**9, block_tokens: int = 16, scattered: bool = False) -> Tensor:
    """[T, vocab]: one request, `chunk` tokens a step, over a fresh pool."""
    needed = -(-len(ids) // block_tokens)
    blocks = torch.randperm(needed + 3)[:needed].tolist() if scattered else list(range(2, needed + 2))
    cache = nan_cache(model, needed + 3, block_tokens)
    steps = range(0, len(ids), chunk)
    return torch.cat(
        [model.forward(batch_of([(ids[at : at + chunk], at, blocks)], block_tokens), cache) for at in steps]
    )


def some_ids(count: int, vocab_size: int = SIZES["vocab_size"], seed: int = 1) -> Tensor:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(seed))
