"""What fits: weights of a rank, and how many tokens of KV beside them."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.sim.cost.layout import Layout
from samovar.spec.attention_shape import AttentionShape, MlaShape, format_of
from samovar.spec.device import Device
from samovar.spec.model_shape import ModelShape


@dataclass(frozen=True, slots=True)
class Memory:
    """How an engine divides a device's memory; named as its flags are."""

    gpu_memory_utilization: float = 0.9
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    """Counts where every sequence keeps a window beside its blocks."""
    drafts: bool = False
    """Whether the model's own draft layer is loaded."""


def weight_bytes(model: ModelShape, layout: Layout, *, drafts: bool = False) -> float:
    """Of one rank. Attention, dense layers, shared experts, embeddings and head are divided over tensor-parallel ranks,
    as far as they can be, and repeated over data-parallel ones; routed experts are divided over all of them."""
    formats, tp = model.formats, layout.tp
    attention = sum(_attention_bytes(model, shape, layout) for shape in model.attention)
    dense = model.dense_layers * model.dense_parameters * formats.ffn.bytes / tp
    moe = _moe_layer_bytes(model, layout) * model.moe.layers if model.moe else 0.0
    found = attention + dense + moe + model.embedding_parameters * formats.head.bytes / tp
    if drafts and model.draft:
        ffn = _moe_layer_bytes(model, layout) if model.moe else model.dense_parameters * formats.ffn.bytes / tp
        found += _attention_bytes(model, model.draft.attention, layout) + ffn
    return found


def _attention_bytes(model: ModelShape, shape: AttentionShape, layout: Layout) -> float:
    return shape.layers * sum(
        matrix.elements_on(layout.tp) * format_of(matrix, model.formats.attention).bytes
        for matrix in shape.matrices(model.hidden_size)
    )


def _moe_layer_bytes(model: ModelShape, layout: Layout) -> float:
    assert model.moe
    experts = model.moe.experts * model.expert_parameters * model.formats.experts.bytes / layout.devices
    shared = model.shared_parameters * model.formats.ffn.bytes / layout.tp
    return experts + shared + model.router_parameters * 2


def activation_bytes(model: ModelShape, layout: Layout, num_tokens: int) -> float:
    """The widest place of a layer, in bf16: the residual stream and its copies, beside all heads' queries and outputs,
    a dense layer's inside, or the experts' inputs and insides, whichever is most."""
    inner = [3 * model.dense_intermediate_size / layout.tp]
    inner += [shape.heads * sum(_head_widths(shape)) / layout.tp for shape in model.attention]
    if model.moe:
        slices = 1 if layout.ep else layout.devices
        inner.append(model.moe.top_k * (model.hidden_size + 3 * model.moe.intermediate_size / slices))
    return 2.0 * num_tokens * (4 * model.hidden_size + max(inner))


def _head_widths(shape: AttentionShape) -> tuple[int, int]:
    """Of a query and an output, as prompts compute them."""
    if isinstance(shape, MlaShape):
        return shape.nope_head_dim + shape.rope_head_dim, shape.v_head_dim
    return shape.head_dim, shape.head_dim


def kv_bytes(model: ModelShape, device: Device, layout: Layout, memory: Memory) -> float:
    """What one rank has for KV blocks. Raises ConfigError when nothing is left."""
    if not 0 < memory.gpu_memory_utilization <= 1:
        raise ConfigError(
            f"--gpu-memory-utilization is {memory.gpu_memory_utilization}; it must be more than 0 and at most 1"
        )
    usable = memory.gpu_memory_utilization * device.memory_bytes
    taken = _taken_bytes(model, device, layout, memory)
    if usable <= taken:
        weights, least = weight_bytes(model, layout, drafts=memory.drafts), least_tp(model, device, memory)
        raise ConfigError(
            f"{model.name} on {layout.devices} x {device.name} (tp {layout.tp}, dp {layout.dp}): a rank needs"
            f" {taken / 1e9:.1f} GB beside its KV, {weights / 1e9:.1f} of it weights, and may use {usable / 1e9:.1f}"
            + (f"; with --tensor-parallel-size alone {least} devices are enough" if least else "")
        )
    return usable - taken


def least_tp(model: ModelShape, device: Device, memory: Memory) -> int | None:
    """The smallest power of two of devices that hold the model and some KV by tensor parallelism alone; None when those
    that its heads can be divided over do not."""
    usable = memory.gpu_memory_utilization * device.memory_bytes
    tp = 1
    while all(shape.heads % tp == 0 for shape in model.attention):
        if _taken_bytes(model, device, Layout(tp=tp), memory) < usable:
            return tp
        tp *= 2
    return None


def _taken_bytes(model: ModelShape, device: Device, layout: Layout, memory: Memory) -> float:
    """Of one device, beside KV blocks."""
    taken = weight_bytes(model, layout, drafts=memory.drafts) + device.reserved_bytes
    taken += device.collective_bytes if layout.devices > 1 else 0
    taken += activation_bytes(model, layout, memory.max_num_batched_tokens)
    return taken + memory.max_num_seqs * model.kv_bytes_per_sequence()


def capacity_tokens(model: ModelShape, device: Device, layout: Layout, memory: Memory) -> int:
    """Tokens whose KV one rank of the DP group keeps: whole blocks, of `block_tokens * dcp` each."""
    layout.check(model)
    kv = layout.kv(model)
    token_bytes = model.kv_bytes_per_token(kv, layout.tp, layout.dcp)
    if memory.drafts and model.draft:
        token_bytes += model.draft.attention.kv_bytes_per_token(kv, layout.tp, layout.dcp)
    block = model.block_tokens * layout.dcp
    return int(kv_bytes(model, device, layout, memory) / token_bytes) // block * block
