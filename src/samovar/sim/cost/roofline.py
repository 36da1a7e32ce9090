"""The cost model of hardware one does not have: shapes of all ranks of a DP group -> seconds, by published peaks and
measured efficiencies. Formulas and sources: docs/simulator.md.

A group's step lasts as long as its slowest rank. Which rank that is follows from what its own rows and contexts take;
experts and exchanges are the group's. For every shape, time never rises with bandwidth or peaks and never falls with
rows, contexts or chunks.

A step without prompts takes a few microseconds to work out, one with prompts some tens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from samovar.sim.cost.collectives import Exchanges
from samovar.sim.cost.layers import LayerCosts, RowTimes, Stack
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.prefix_gather import PrefixGather
from samovar.sim.cost.rates import Machine
from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import Path, StepCost
from samovar.spec.catalog import load_kernels
from samovar.spec.device import Device
from samovar.spec.kernels import Kernels
from samovar.spec.model_shape import ModelShape


class CostModel:
    """Raises ConfigError for a layout that the model cannot have. Not shared between threads: it remembers what it
    worked out."""

    def __init__(self, model: ModelShape, device: Device, layout: Layout, kernels: Kernels | None = None) -> None:
        layout.check(model)
        self.model, self.device, self.layout = model, device, layout
        self.kernels = kernels or load_kernels(device.kernels)
        exchanges = Exchanges(device, self.kernels, layout.tp, layout.dcp, layout.devices)
        stack = Stack(model.attention, model.dense_layers, model.moe.layers if model.moe else 0)

        def costs(layers: Stack, mono: bool) -> LayerCosts:
            return LayerCosts(model, layers, Machine(device, self.kernels, mono=mono), layout, exchanges)

        self._launched = costs(stack, False)
        self._mono = costs(stack, True) if layout.mode == "mono" else None
        self._draft = costs(_draft_stack(model), False) if model.draft else None
        self._prefix = PrefixGather(model, layout, exchanges) if layout.dcp > 1 else None

    def step_s(self, shapes: Sequence[StepShape]) -> StepCost:
        """`shapes` has one entry per rank of the DP group."""
        if len(shapes) != self.layout.dp:
            raise ValueError(f"{len(shapes)} shapes for {self.layout.dp} ranks")
        load = _Load(shapes)
        if load.chunked:
            return self._mixed(shapes, load)
        if self.layout.mode == "eager":
            return self._decode(self._launched, shapes, load, load.widest, "eager")
        cost = self._decode(self._launched, shapes, load, padded_rows(load.widest), "graph")
        if self._mono and load.widest <= self.kernels.mono.max_rows:
            mono = self._decode(self._mono, shapes, load, load.widest, "mono")
            return mono if mono.total_s < cost.total_s else cost
        return cost

    def _decode(self, costs: LayerCosts, shapes: Sequence[StepShape], load: _Load, rows: int, path: Path) -> StepCost:
        """All ranks run as many rows as the widest, so the slowest one is known by its attention. A rank with the
        longest contexts can only be beaten by one with more sequences or more rows to each."""
        slowest = load.longest
        num, per = shapes[slowest].decode_sequences, shapes[slowest].rows_per_sequence
        attention_s = _decode_attention_s(costs, shapes[slowest])
        if load.sequences > num or load.drafts >= per:
            for rank, shape in enumerate(shapes):
                if shape.decode_sequences > num or shape.rows_per_sequence > per:
                    seconds = _decode_attention_s(costs, shape)
                    if seconds > attention_s:
                        attention_s, slowest = seconds, rank
        times = costs.equal_rows(rows)
        of_rank = _Rank(slowest, shapes[slowest], attention_s, 0.0, 0.0)
        return self._sum(costs, times, load, of_rank, rows, 0.0, path)

    def _mixed(self, shapes: Sequence[StepShape], load: _Load) -> StepCost:
        """Steps with prompts are launched one kernel at a time, and ranks keep their own numbers of rows, though none
        runs fewer than a graph would have."""
        costs = self._launched
        least = load.widest if self.layout.mode == "eager" else padded_rows(load.widest)
        worst, slowest, slowest_rows = -1.0, None, least
        tokens, most, outputs = 0, least, least
        for rank, shape in enumerate(shapes):
            chunks = shape.chunks
            attention_s = _decode_attention_s(costs, shape)
            rows = shape.decode_sequences * shape.rows_per_sequence
            gathered_s = twice_s = 0.0
            if chunks:
                if rows + len(chunks) > outputs:
                    outputs = rows + len(chunks)
                twice_s = costs.attention_floor_s if rows else 0.0
                gathered_s = self._prefix.seconds(chunks) if self._prefix else 0.0
                for cost in costs.attention:
                    attention_s += cost.chunks_s(chunks)
                for chunk in chunks:
                    rows += chunk.new_tokens
            tokens += rows or 1
            if rows < least:
                rows = least
            elif rows > most:
                most = rows
            local_s = attention_s + costs.local_s(rows) + gathered_s + twice_s
            if local_s > worst:
                worst, slowest_rows = local_s, rows
                slowest = _Rank(rank, shape, attention_s, gathered_s, twice_s)
        assert slowest
        decoding = load.widest if load.sequences else 0
        times = costs.rows(slowest_rows, max(tokens, least * self.layout.dp), most, decoding, outputs)
        return self._sum(costs, times, load, slowest, outputs, self.kernels.step.prefill_floor_s, "eager")

    def _drafting_s(self, load: _Load) -> float:
        """Each drafted token of every sequence runs through the draft layer and the head."""
        if not load.drafts or self._draft is None:
            return 0.0
        rows = load.sequences if self.layout.mode == "eager" else padded_rows(load.sequences)
        seconds = self._draft.equal_rows(rows).total_s
        for cost in self._draft.attention:
            seconds += cost.decode_s(load.sequences, load.sequences, load.most_context)
        return load.drafts * seconds

    def _sum(
        self, costs: LayerCosts, times: RowTimes, load: _Load, slowest: _Rank, outputs: int, floor_s: float, path: Path
    ) -> StepCost:
        step = self.kernels.step
        host_s = step.sample_s + outputs * step.sample_row_s + load.sequences * step.host_sequence_s
        if self.layout.dp > 1:
            host_s += step.sync_s
        draft_s = self._drafting_s(load)
        launch_s = times.launch_s + slowest.twice_s
        exchanging = times.collectives_s + slowest.gathered_s
        computing = times.total_s - times.collectives_s - times.launch_s + slowest.attention_s
        if self.layout.overlap:
            exchanging -= self.layout.overlap * min(exchanging, computing)
        if path == "eager":
            launch_s += max(0.0, costs.enqueue_s - computing - exchanging - launch_s)
        shape, bandwidth_s = slowest.shape, times.bandwidth_s
        rows = shape.decode_sequences * shape.rows_per_sequence
        for cost in costs.attention:
            bandwidth_s += cost.decode_bandwidth_s(shape.decode_sequences, rows, shape.context_tokens)
        return StepCost(
            computing + exchanging + launch_s + draft_s + floor_s + host_s,
            times.projections_s,
            slowest.attention_s,
            times.output_s,
            times.ffn_s,
            times.seam_s,
            exchanging,
            launch_s,
            times.head_s,
            draft_s,
            floor_s,
            host_s,
            0.0,
            bandwidth_s,
            slowest.rank,
            path,
        )


class _Rank(NamedTuple):
    """The slowest one."""

    rank: int
    shape: StepShape
    attention_s: float
    gathered_s: float
    """Bringing the context of its chunks together, under DCP."""
    twice_s: float
    """Floors of the attention's second run, when it decodes and has chunks."""


class _Load:
    """What of a group's shapes does not belong to one rank."""

    __slots__ = ("chunked", "drafts", "longest", "most_context", "sequences", "widest")

    def __init__(self, shapes: Sequence[StepShape]) -> None:
        widest, sequences, per, longest, most = 1, 0, 1, 0, -1
        chunked = False
        for rank, shape in enumerate(shapes):
            num = shape.decode_sequences
            if num:
                if num > sequences:
                    sequences = num
                if shape.rows_per_sequence > per:
                    per = shape.rows_per_sequence
                if num * shape.rows_per_sequence > widest:
                    widest = num * shape.rows_per_sequence
            if shape.context_tokens > most:
                most, longest = shape.context_tokens, rank
            if shape.chunks:
                chunked = True
        self.widest = widest
        """Most rows that decode on one rank, at least 1: an idle rank runs an empty row with the others."""
        self.sequences = sequences
        self.drafts = per - 1
        self.longest = longest
        """The rank with most context."""
        self.most_context = most
        self.chunked = chunked


def _decode_attention_s(costs: LayerCosts, shape: StepShape) -> float:
    num = shape.decode_sequences
    if not num:
        return 0.0
    rows, context = num * shape.rows_per_sequence, shape.context_tokens
    seconds = 0.0
    for cost in costs.attention:
        seconds += cost.decode_s(num, rows, context)
    return seconds


def padded_rows(rows: int) -> int:
    """What a captured graph of at least that many rows has: 1, 2, 4, then every 8th, from 256 on every 16th."""
    if rows <= 2:
        return max(rows, 1)
    if rows <= 4:
        return 4
    step = 8 if rows <= 256 else 16
    return -(-rows // step) * step


def _draft_stack(model: ModelShape) -> Stack:
    assert model.draft
    return Stack((model.draft.attention,), 0 if model.moe else 1, 1 if model.moe else 0)
