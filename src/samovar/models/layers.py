"""The two halves of a decoder layer. Weights, cache and ops come as arguments; nothing is kept here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import linear

from samovar.kernels.rows import RowPlan
from samovar.kernels.table import Ops
from samovar.models.weights import LayerWeights
from samovar.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class StepContext:
    """What every layer of one forward shares."""

    cos: Tensor
    sin: Tensor
    """[T, head_dim / 2] float32"""
    slots: Tensor
    """[T] int64"""
    rows: Sequence[RowPlan]


def attention(
    x: Tensor, layer: LayerWeights, spec: ModelSpec, ops: Ops, step: StepContext, keys: Tensor, values: Tensor
) -> Tensor:
    """x [T, hidden], normalised -> [T, hidden]. Writes the step's K and V into the layer's pool, then reads it."""
    heads, kv_heads, head_dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
    qkv = linear(x, layer.qkv, layer.qkv_bias).view(-1, heads + 2 * kv_heads, head_dim)
    qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
    if layer.qk_norm is not None:
        qk = ops.rms_norm(qk, layer.qk_norm, spec.rms_norm_eps)
    qk = ops.rope(qk, step.cos, step.sin)
    ops.write_kv(keys, values, step.slots, qk[:, heads:], v)
    mixed = ops.paged_attention(qk[:, :heads], keys, values, step.rows, head_dim**-0.5)
    return linear(mixed.view(-1, heads * head_dim), layer.o, layer.o_bias)


def mlp(x: Tensor, layer: LayerWeights, ops: Ops) -> Tensor:
    """x [T, hidden], normalised -> [T, hidden]."""
    inner = ops.swiglu(linear(x, layer.gate_up, layer.gate_up_bias))
    return linear(inner, layer.down, layer.down_bias)
