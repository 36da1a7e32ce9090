"""All layers of a model on one machine, without attention over the context: what depends on numbers of rows alone.

It is worked out once per number of rows and remembered, so that a step costs a look-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from samovar.sim.cost.attention import attention_cost
from samovar.sim.cost.collectives import ACTIVATION_BYTES, DISPATCH_BYTES, Exchanges
from samovar.sim.cost.experts import ExpertCost
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.products import (
    PartTimes,
    attention_products,
    dense_products,
    head_product,
    part_times,
    shared_products,
)
from samovar.sim.cost.rates import Machine
from samovar.spec.attention_shape import AttentionShape, CompressedShape, MlaShape, kind_of
from samovar.spec.model_shape import ModelShape


class RowTimes(msgspec.Struct, frozen=True, gc=False):
    """Seconds of everything but attention over the context, sampling and drafting, nothing hidden behind anything."""

    total_s: float
    projections_s: float
    output_s: float
    ffn_s: float
    seam_s: float
    collectives_s: float
    launch_s: float
    head_s: float
    bandwidth_s: float


@dataclass(frozen=True, slots=True)
class Stack:
    """Which layers: a model's own, or its draft layer."""

    attention: tuple[AttentionShape, ...]
    dense_layers: int
    moe_layers: int

    @property
    def layers(self) -> int:
        return sum(shape.layers for shape in self.attention)


class LayerCosts:
    """`rows(n, ...)` of one rank; `attention` holds one cost per kind of layer."""

    def __init__(self, model: ModelShape, stack: Stack, machine: Machine, layout: Layout, exchanges: Exchanges) -> None:
        self._model, self._stack, self._layout, self._exchanges = model, stack, layout, exchanges
        self._machine = machine
        self.attention = tuple(attention_cost(shape, machine, layout, layout.kv(model)) for shape in stack.attention)
        self.attention_floor_s = sum(cost.floor_s for cost in self.attention)
        self._products = attention_products(model, stack.attention, machine, layout)
        if stack.dense_layers:
            self._products += dense_products(model, machine, layout)
        if stack.moe_layers:
            self._products += shared_products(model, stack.moe_layers, machine, layout)
        self._head = head_product(model, machine, layout)
        self._experts = ExpertCost(model, model.moe, machine, layout) if model.moe and stack.moe_layers else None
        self._launch_s = self._launches_s()
        seams = 0 if machine.mono else stack.layers * model.seam_kernels
        self._seam_s = seams * machine.kernels.launch.graph_op_s
        self.enqueue_s = self._num_ops() * machine.kernels.launch.eager_op_s
        self._times: dict[int, PartTimes] = {}
        self._equal: dict[int, RowTimes] = {}

    def local_s(self, rows: int) -> float:
        """What only depends on a rank's own rows, to find the slowest rank."""
        times = self._dense(rows)
        return times.projections_s + times.output_s + times.ffn_s

    def equal_rows(self, rows: int) -> RowTimes:
        """Every rank of the group has `rows`, and all of them reach the head."""
        found = self._equal.get(rows)
        if found is None:
            found = self._equal[rows] = self.rows(rows, rows * self._layout.dp, rows, rows, rows)
        return found

    def _dense(self, rows: int) -> PartTimes:
        found = self._times.get(rows)
        if found is None:
            found = self._times[rows] = part_times(self._products, rows)
        return found

    def rows(self, rows: int, tokens: int, widest: int, decoding: int, outputs: int) -> RowTimes:
        """A rank with `rows` of the group's `tokens`, `widest` being the most of any rank and `decoding` the most that
        decode; `outputs` reach the head."""
        dense = self._dense(rows)
        head = part_times((self._head,), outputs)
        experts_s, bandwidth_s = 0.0, dense.bandwidth_s + head.bandwidth_s
        if self._experts:
            each, reading = self._experts.seconds(tokens)
            experts_s = self._stack.moe_layers * each
            bandwidth_s += experts_s if reading else 0.0
        ffn_s = dense.ffn_s + experts_s
        computing = dense.projections_s + dense.output_s + ffn_s
        exchanging = self._attention_exchange_s(widest, decoding) + self._ffn_exchange_s(tokens, widest, experts_s)
        total = computing + self._seam_s + exchanging + self._launch_s + head.head_s
        return RowTimes(
            total,
            dense.projections_s,
            dense.output_s,
            ffn_s,
            self._seam_s,
            exchanging,
            self._launch_s,
            head.head_s,
            bandwidth_s,
        )

    def _launches_s(self) -> float:
        if not self._machine.mono:
            floors = sum(item.layers * item.floor_s for item in (*self._products, self._head))
            experts = self._stack.moe_layers * self._experts.floor_s if self._experts else 0.0
            return floors + experts + self.attention_floor_s
        mono, launch = self._machine.kernels.mono, self._machine.kernels.launch
        return sum(
            shape.layers
            * (mono.stages[kind_of(shape)] * mono.stage_s + mono.launches[kind_of(shape)] * launch.graph_op_s)
            for shape in self._stack.attention
        )

    def _num_ops(self) -> int:
        """Kernels that a host launches one by one."""
        modules = self._stack.layers + self._stack.moe_layers
        counted = sum(item.layers for item in (*self._products, self._head))
        return (
            counted
            + self._stack.layers * self._model.seam_kernels
            + (modules * self._machine.kernels.launch.ops_per_module)
        )

    def _attention_exchange_s(self, rows: int, decoding: int) -> float:
        """Under DCP, prompts run over a context that was gathered (`prefix_gather`): only what decodes is exchanged."""
        layout, found = self._layout, 0.0
        if layout.tp > 1:
            found += self._stack.layers * self._all_reduce_s(rows)
        if layout.dcp > 1 and decoding:
            found += sum(shape.layers * self._dcp_s(shape, decoding) for shape in self._stack.attention)
        return found

    def _all_reduce_s(self, rows: int) -> float:
        width = rows * self._model.hidden_size
        if not self._machine.mono:
            return self._exchanges.all_reduce.seconds(width * ACTIVATION_BYTES)
        return self._pushed_s(width)

    def _pushed_s(self, width: int) -> float:
        """Inside mono decode: pairs of value and tag written straight to the peers, 4 bytes an element; to all of them,
        or to a column's owner and back where that is less, one stage later."""
        mono, peers = self._machine.kernels.mono, self._layout.tp - 1
        sent_s = width * 4 * peers / self._machine.device.scale_up.bytes_per_s
        return min(sent_s, sent_s * 2 / self._layout.tp + mono.stage_s)

    def _dcp_s(self, shape: AttentionShape, rows: int) -> float:
        """Queries are gathered, unless every rank computes them; partial outputs and their log-sums are exchanged."""
        layout = self._layout
        heads = shape.heads * layout.dcp // layout.tp
        query, value = _widths(shape)
        found = 0.0
        if not layout.dcp_q_replicate:
            found += self._exchanges.dcp_gather.seconds(rows * heads * query * ACTIVATION_BYTES)
        outputs, sums = rows * heads * value * ACTIVATION_BYTES, rows * heads * 4
        if layout.dcp_comm == "a2a":
            found += self._exchanges.dcp_all_to_all.seconds(outputs + sums)
        else:
            found += self._exchanges.dcp_gather.seconds(sums * layout.dcp)
            found += self._exchanges.dcp_gather.seconds(outputs)
        if isinstance(shape, CompressedShape) and shape.index_heads:
            found += self._exchanges.dcp_gather.seconds(rows * shape.index_topk * 8 * layout.dcp)
        return found

    def _ffn_exchange_s(self, tokens: int, widest: int, experts_s: float) -> float:
        layout, stack = self._layout, self._stack
        reduced = stack.dense_layers if layout.dp > 1 else stack.dense_layers + stack.moe_layers
        found = reduced * self._all_reduce_s(widest) if layout.tp > 1 else 0.0
        moe = self._model.moe
        if layout.dp == 1 or moe is None or not stack.moe_layers:
            return found
        if layout.moe_comm == "ag_rs" or not layout.ep:
            gathered = tokens * self._model.hidden_size * ACTIVATION_BYTES
            return found + stack.moe_layers * 2 * self._exchanges.expert_gather.seconds(gathered)
        sent = widest * moe.top_k * self._model.hidden_size * DISPATCH_BYTES / layout.tp
        each = self._exchanges.expert_dispatch.seconds(sent)
        if layout.moe_comm == "fused":
            return found + max(0.0, stack.moe_layers * each - experts_s)
        return found + stack.moe_layers * each


def _widths(shape: AttentionShape) -> tuple[int, int]:
    """Of a head's query and output where they cross ranks."""
    if isinstance(shape, MlaShape):
        return shape.latent, shape.kv_lora_rank
    return shape.head_dim, shape.head_dim
