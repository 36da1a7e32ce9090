"""The llama family over packed weights and tiled KV: the normal path, for steps of any shape.

Activations, the residual stream and norms are float32; what is rounded is rounded at a matrix's input. The bits of a
row do not depend on the other rows, so a prompt may be cut anywhere, and a request joined by any others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from samovar.kernels.packed_ops import Float32Array, KVTiles, PackedOps
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.packed_weights import PackedLayer, PackedWeights
from samovar.models.rope import inverse_frequencies, rotation
from samovar.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class _Step:
    """What the layers of one forward share: where its T tokens belong, and buffers that each layer uses anew."""

    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    x: Float32Array
    """[T, hidden], the residual stream."""
    normal: Float32Array
    """[T, hidden]"""
    qkv: Float32Array
    """[T, H + 2 Hkv, D]"""
    mixed: Float32Array
    """[T, H, D], what attention gives."""
    inner: Float32Array
    """[T, I]"""

    def only(self, rows: NDArray[np.int64]) -> _Step:
        """For the end of a forward, which needs few of the tokens."""
        count = len(rows)
        return replace(
            self, x=self.x[rows], normal=self.normal[:count], mixed=self.mixed[rows], inner=self.inner[:count]
        )


class PackedLlama:
    """Holds weights and nothing else: every forward is a function of its batch and the cache.

    Positions are below `max_positions`: cosines and sines are kept up to there, 4 D bytes a position.
    """

    def __init__(self, spec: ModelSpec, weights: PackedWeights, ops: PackedOps, max_positions: int) -> None:
        self.spec = spec
        self.weights = weights
        self.ops = ops
        frequencies, scale = inverse_frequencies(spec.rope, spec.head_dim, weights.rope_factors)
        cos, sin = rotation(torch.arange(max_positions), frequencies, scale)
        self.cos: Float32Array = cos.contiguous().numpy()
        """[max_positions, D / 2], as `sin`."""
        self.sin: Float32Array = sin.contiguous().numpy()

    def forward(self, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Logits [S, vocab] float32 of `batch.logit_rows`. Writes the batch's slots of the tiled `cache` and reads its
        rows' contexts. The last layer computes the rows that logits are wanted of, and of the others K and V."""
        spec, weights, ops = self.spec, self.weights, self.ops
        step = self._begin(batch)
        wanted: NDArray[np.int64] = batch.logit_rows.numpy()
        ops.embed(weights.embed.handle, batch.token_ids.numpy(), step.x)
        last = len(weights.layers) - 1
        for index, layer in enumerate(weights.layers):
            self._write_kv(layer, step, cache.tiles[index])
            if index == last and not len(wanted):
                break
            queries = step.qkv[:, : spec.num_heads]
            ops.attention(queries, *cache.tiles[index], batch.rows, spec.head_dim**-0.5, step.mixed)
            if index == last:
                step = step.only(wanted)
            self._finish_layer(layer, step)
        logits = np.empty((len(wanted), spec.vocab_size), dtype=np.float32)
        if len(wanted):
            ops.rms_norm(step.x, weights.norm, spec.rms_norm_eps, step.normal)
            ops.linear(step.normal, weights.lm_head.handle, None, False, logits)
        return torch.from_numpy(logits)

    def argmax(self, logits: Tensor) -> tuple[list[int], list[bool]]:
        """Per row the lowest of the best tokens, and whether every logit is finite."""
        tokens, finite = np.empty(len(logits), dtype=np.int32), np.empty(len(logits), dtype=np.bool_)
        self.ops.argmax(logits.numpy(), tokens, finite)
        return tokens.tolist(), finite.tolist()

    def _begin(self, batch: ForwardBatch) -> _Step:
        spec, num_tokens = self.spec, len(batch.token_ids)
        heads = (num_tokens, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        return _Step(
            positions=batch.positions.numpy(),
            slots=batch.slots.numpy(),
            x=np.empty((num_tokens, spec.hidden_size), dtype=np.float32),
            normal=np.empty((num_tokens, spec.hidden_size), dtype=np.float32),
            qkv=np.empty(heads, dtype=np.float32),
            mixed=np.empty((num_tokens, spec.num_heads, spec.head_dim), dtype=np.float32),
            inner=np.empty((num_tokens, spec.intermediate_size), dtype=np.float32),
        )

    def _write_kv(self, layer: PackedLayer, step: _Step, tiles: tuple[KVTiles, KVTiles]) -> None:
        """Leaves the rotated queries in `qkv`."""
        spec, ops, qkv = self.spec, self.ops, step.qkv
        heads, rotated = spec.num_heads, spec.num_heads + spec.num_kv_heads
        ops.rms_norm(step.x, layer.input_norm, spec.rms_norm_eps, step.normal)
        ops.linear(step.normal, layer.qkv.handle, layer.qkv_bias, False, qkv.reshape(len(qkv), -1))
        q, k = qkv[:, :heads], qkv[:, heads:rotated]
        if layer.q_norm is not None and layer.k_norm is not None:
            ops.rms_norm(q, layer.q_norm, spec.rms_norm_eps, q)
            ops.rms_norm(k, layer.k_norm, spec.rms_norm_eps, k)
        ops.rope(qkv[:, :rotated], step.positions, self.cos, self.sin)
        ops.write_kv(*tiles, step.slots, k, qkv[:, rotated:])

    def _finish_layer(self, layer: PackedLayer, step: _Step) -> None:
        """From what attention gave to the layer's end, into `x`."""
        ops, eps, x = self.ops, self.spec.rms_norm_eps, step.x
        ops.linear(step.mixed.reshape(len(x), -1), layer.o.handle, layer.o_bias, True, x)
        ops.rms_norm(x, layer.post_norm, eps, step.normal)
        ops.linear_swiglu(step.normal, layer.gate_up.handle, layer.gate_up_bias, step.inner)
        ops.linear(step.inner, layer.down.handle, layer.down_bias, True, x)
