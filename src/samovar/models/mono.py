"""Mono decode: a step of decoding rows as one call of the native program; every other step takes the normal path.

Both run the same kernels over the same weights and KV, so they may alternate freely, and a row's bits are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from samovar.kernels.packed_ops import KVTiles, MonoProgram
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.packed_llama import PackedLlama
from samovar.models.packed_weights import PackedLayer

MAX_ROWS = 64
"""Of a mono step: its buffers are sized once."""


class MonoLlama:
    """A `PackedLlama` whose decode steps of up to `max_rows` rows run as one program over `cache`.

    The program is bound to the cache: `forward` takes that one alone.
    """

    def __init__(self, normal: PackedLlama, cache: KVCache, max_rows: int = MAX_ROWS) -> None:
        assert 1 <= max_rows <= MAX_ROWS
        self.spec = normal.spec
        self.normal = normal
        self.max_rows = max_rows
        self._cache = cache
        self._program = bind_program(normal, cache)

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """As `PackedLlama.forward`. Raises RuntimeError when the program's threads wait too long for each other."""
        assert cache is self._cache
        if not self.takes(batch):
            return self.normal.forward(batch, cache)
        logits = np.empty((len(batch.rows), self.spec.vocab_size), dtype=np.float32)
        self._program.step(*step_arguments(batch), logits)
        return torch.from_numpy(logits)

    def takes(self, batch: ForwardBatch) -> bool:
        """Whether it is a decode step: one token per row, and every row's logits wanted."""
        num_tokens = len(batch.token_ids)
        return len(batch.rows) == num_tokens == len(batch.logit_rows) and num_tokens <= self.max_rows

    def argmax(self, logits: Tensor) -> tuple[list[int], list[bool]]:
        return self.normal.argmax(logits)


def bind_program(model: PackedLlama, cache: KVCache) -> MonoProgram:
    """The native program over the model's weights and this cache, both of which it keeps alive."""
    spec, weights = model.spec, model.weights
    assert model.ops.mono is not None, f"{model.ops.name} has no mono decode"
    description: dict[str, object] = {
        "hidden": spec.hidden_size,
        "heads": spec.num_heads,
        "kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate": spec.intermediate_size,
        "vocab": spec.vocab_size,
        "max_positions": len(model.cos),
        "eps": spec.rms_norm_eps,
        "attention_scale": spec.head_dim**-0.5,
        "cos": model.cos,
        "sin": model.sin,
        "embed": weights.embed.handle,
        "norm": weights.norm,
        "lm_head": weights.lm_head.handle,
    }
    layers = [
        _describe_layer(model, layer, keys, values)
        for layer, (keys, values) in zip(weights.layers, cache.tiles, strict=True)
    ]
    return model.ops.mono(description, layers)


def step_arguments(
    batch: ForwardBatch,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Token ids, positions, slots and the tables' addresses, one of each per row."""
    ids = batch.token_ids.numpy().astype(np.int32)
    return ids, batch.rows.starts, batch.slots.numpy(), batch.rows.addresses


def _describe_layer(model: PackedLlama, layer: PackedLayer, keys: KVTiles, values: KVTiles) -> dict[str, object]:
    qk_norm = None
    if layer.q_norm is not None and layer.k_norm is not None:
        spec = model.spec
        qk_norm = np.concatenate(
            (np.tile(layer.q_norm, (spec.num_heads, 1)), np.tile(layer.k_norm, (spec.num_kv_heads, 1)))
        )
    return {
        "input_norm": layer.input_norm,
        "qkv": layer.qkv.handle,
        "qkv_bias": layer.qkv_bias,
        "qk_norm": qk_norm,
        "o": layer.o.handle,
        "o_bias": layer.o_bias,
        "post_norm": layer.post_norm,
        "gate_up": layer.gate_up.handle,
        "gate_up_bias": layer.gate_up_bias,
        "down": layer.down.handle,
        "down_bias": layer.down_bias,
        "keys": keys,
        "values": values,
    }
