"""Attention over the context: what a rank's decoding rows and prompt chunks take, beside their products.

Each class covers all layers of one kind. `decode_s` is called for every rank of every step, so everything that does not
depend on the step is multiplied out at the start. Results are without floors, which count as launches.
"""

from __future__ import annotations

from typing import Protocol

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.rates import Machine
from samovar.sim.cost.shape import Chunk
from samovar.spec.attention_shape import AttentionShape, CompressedShape, GqaShape, MlaShape, kind_of
from samovar.spec.number_format import NumberFormat


class AttentionCost(Protocol):
    floor_s: float
    """Of all layers, once for decoding rows and once for chunks."""

    def decode_s(self, sequences: int, rows: int, context: int) -> float: ...

    def decode_bandwidth_s(self, sequences: int, rows: int, context: int) -> float:
        """How much of it reading takes where reading is what bounds; else 0."""
        ...

    def chunks_s(self, chunks: tuple[Chunk, ...]) -> float: ...


class LinearAttention:
    """GQA and MLA: bytes and operations in proportion to the context."""

    def __init__(self, shape: GqaShape | MlaShape, machine: Machine, layout: Layout, kv: NumberFormat) -> None:
        heads = shape.heads // layout.tp
        gathered = heads * layout.dcp  # every rank of a DCP group serves the whole group's heads, over its tokens
        rates = machine.attention(kind_of(shape), kv, gathered)
        pair_ops = (
            2 * (2 * shape.kv_lora_rank + shape.rope_head_dim) if isinstance(shape, MlaShape) else (4 * shape.head_dim)
        )
        self.floor_s = shape.layers * rates.floor_s
        self._read_s = shape.layers * shape.kv_bytes_per_token(kv, layout.tp, layout.dcp) * rates.byte_s
        self._pair_s = shape.layers * gathered * pair_ops / layout.dcp * rates.op_s
        self._row_s = shape.layers * rates.row_s
        self._chunk_read_s = shape.layers * shape.kv_bytes_per_token(kv, layout.tp) * rates.byte_s
        self._chunk_row_s = shape.layers * heads * rates.prefill_row_s / gathered
        head_op_s = shape.layers * heads * rates.prefill_op_s
        self._absorbed_s = pair_ops * head_op_s
        self._expanded_s, self._expand_s = self._absorbed_s, 0.0
        if isinstance(shape, MlaShape):
            self._expanded_s = 2 * (shape.nope_head_dim + shape.rope_head_dim + shape.v_head_dim) * head_op_s
            self._expand_s = 2 * shape.kv_lora_rank * (shape.nope_head_dim + shape.v_head_dim) * head_op_s

    def decode_s(self, sequences: int, rows: int, context: int) -> float:
        if not rows:
            return 0.0
        read = context * self._read_s
        multiplied = context * rows / sequences * self._pair_s
        return (read if read > multiplied else multiplied) + rows * self._row_s

    def decode_bandwidth_s(self, sequences: int, rows: int, context: int) -> float:
        read = context * self._read_s
        return read if rows and read >= context * rows / sequences * self._pair_s else 0.0

    def chunks_s(self, chunks: tuple[Chunk, ...]) -> float:
        """A latent prefix is attended to as it lies, or expanded to keys and values again for every chunk: whichever
        is less work."""
        seconds = 0.0
        for chunk in chunks:
            new, context = chunk.new_tokens, chunk.context_tokens
            pairs = new * (context + new / 2)
            multiplied = pairs * self._absorbed_s
            expanded = pairs * self._expanded_s + context * self._expand_s
            if expanded < multiplied:
                multiplied = expanded
            read = (context + new) * self._chunk_read_s
            seconds += (read if read > multiplied else multiplied) + new * self._chunk_row_s
        return seconds


class CompressedAttention:
    """DeepSeek-V4: an index scan over records where there is an index, and attention to those chosen and a window.
    Sequences are taken to be as long as their mean."""

    def __init__(self, shape: CompressedShape, machine: Machine, layout: Layout, kv: NumberFormat) -> None:
        heads = shape.heads // layout.tp
        gathered = heads * layout.dcp
        rates = machine.attention("compressed", kv, gathered)
        layers = shape.layers
        self.floor_s = layers * (rates.floor_s + (rates.index_floor_s if shape.index_heads else 0.0))
        self._per_token = 1 / shape.ratio if shape.ratio else 0.0
        self._topk = float(shape.index_topk) if shape.index_heads else None
        self._dcp = layout.dcp
        self._window = float(shape.window)
        self._record_s = layers * shape.record_bytes * rates.byte_s
        self._row_s = layers * rates.row_s
        self._chunk_row_s = layers * heads * rates.prefill_row_s / gathered
        self._key_s = layers * 4 * gathered * shape.head_dim * rates.op_s
        self._chunk_key_s = layers * 4 * heads * shape.head_dim * rates.prefill_op_s
        scan_ops = layers * 2 * shape.index_heads * shape.index_head_dim
        self._scan_s = scan_ops * rates.op_s / layout.dcp
        self._chunk_scan_s = scan_ops * rates.prefill_op_s
        self._scan_read_s = layers * shape.index_record_bytes * rates.byte_s / layout.dcp

    def decode_s(self, sequences: int, rows: int, context: int) -> float:
        if not rows:
            return 0.0
        scan_read, scan, read, multiplied = self._terms(sequences, rows, context)
        return (
            (scan_read if scan_read > scan else scan) + (read if read > multiplied else multiplied) + rows * self._row_s
        )

    def decode_bandwidth_s(self, sequences: int, rows: int, context: int) -> float:
        if not rows:
            return 0.0
        scan_read, scan, read, multiplied = self._terms(sequences, rows, context)
        return (scan_read if scan_read >= scan else 0.0) + (read if read >= multiplied else 0.0)

    def _terms(self, sequences: int, rows: int, context: int) -> tuple[float, float, float, float]:
        """Of the scan and of the attention, each reading and multiplying. Without an index all rows of a sequence read
        the same records; with one each row has its own."""
        records = context * self._per_token / sequences
        topk = self._topk
        if topk is None:
            keys = records / self._dcp + self._window
            return 0.0, 0.0, sequences * keys * self._record_s, rows * keys * self._key_s
        keys = (records if records < topk else topk) / self._dcp + self._window
        return (
            sequences * records * self._scan_read_s,
            rows * records * self._scan_s,
            rows * keys * self._record_s,
            rows * keys * self._key_s,
        )

    def chunks_s(self, chunks: tuple[Chunk, ...]) -> float:
        seconds = 0.0
        topk = self._topk
        for chunk in chunks:
            new = chunk.new_tokens
            keys = records = (chunk.context_tokens + new / 2) * self._per_token
            if topk is not None:
                seconds += new * records * self._chunk_scan_s
                if keys > topk:
                    keys = topk
            seconds += new * ((keys + self._window) * self._chunk_key_s + self._chunk_row_s)
        return seconds


def attention_cost(shape: AttentionShape, machine: Machine, layout: Layout, kv: NumberFormat) -> AttentionCost:
    if isinstance(shape, CompressedShape):
        return CompressedAttention(shape, machine, layout, kv)
    return LinearAttention(shape, machine, layout, kv)
