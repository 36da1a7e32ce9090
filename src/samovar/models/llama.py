"""The llama family (Llama, Mistral, Qwen2, Qwen3, SmolLM2) over a paged KV pool: the whole model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from samovar.kernels.table import CPU, Ops
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.layers import StepContext, attention, mlp
from samovar.models.rope import inverse_frequencies, rotation
from samovar.models.weights import Weights
from samovar.spec.model import ModelSpec


class LlamaModel:
    """Holds weights and nothing else: every forward is a function of its batch and the cache."""

    def __init__(self, spec: ModelSpec, weights: Weights, ops: Ops = CPU) -> None:
        self.spec = spec
        self.weights = weights
        self.ops = ops
        self.dtype = weights.embed.dtype
        self._frequencies, self._rope_scale = inverse_frequencies(spec.rope, spec.head_dim, weights.rope_factors)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Logits [S, vocab] float32 of `batch.logit_rows`. Writes the batch's slots of `cache`, which has the model's
        dtype, and reads its rows' contexts."""
        spec, weights, ops = self.spec, self.weights, self.ops
        cos, sin = rotation(batch.positions, self._frequencies, self._rope_scale)
        step = StepContext(cos, sin, batch.slots, batch.rows.plans())
        x = embedding(batch.token_ids, weights.embed)
        for layer, keys, values in zip(weights.layers, cache.keys, cache.values, strict=True):
            normal = ops.rms_norm(x, layer.input_norm, spec.rms_norm_eps)
            x = x + attention(normal, layer, spec, ops, step, keys, values)
            normal = ops.rms_norm(x, layer.post_norm, spec.rms_norm_eps)
            x = x + mlp(normal, layer, ops)
        x = ops.rms_norm(x[batch.logit_rows], weights.norm, spec.rms_norm_eps)
        return linear(x, weights.lm_head).float()
