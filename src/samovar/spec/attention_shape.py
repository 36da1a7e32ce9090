"""Kinds of attention as the cost model sees them: which matrices a layer has, and what it keeps per token.

Matrices list what is multiplied for every row; the work over the context is in `sim.cost`. `split` matrices are divided
over tensor-parallel ranks, the others lie on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from samovar.base.errors import ConfigError
from samovar.spec.number_format import FORMATS, NumberFormat
from samovar.spec.toml_table import TomlTable

KINDS = ("gqa", "mla", "compressed")


@dataclass(frozen=True, slots=True)
class Matrix:
    """A product of every layer of a group. `part` is where its time is counted."""

    name: str
    elements: int
    part: Literal["projections", "output"]
    split: bool
    format: str | None = None
    """When it is kept in another than the model's format for attention."""
    kv_elements: int = 0
    """Of `elements`: what makes the heads of K and V. More ranks than such heads keep one of them each."""
    kv_heads: int = 1

    def elements_on(self, tp: int) -> float:
        """On one of `tp` ranks."""
        if not self.split:
            return self.elements
        return (self.elements - self.kv_elements) / tp + self.kv_elements / min(tp, self.kv_heads)


@dataclass(frozen=True, slots=True)
class GqaShape:
    """Grouped queries: `kv_heads` heads of K and V. Multi-head attention has as many as heads."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        q, kv = hidden * self.heads * self.head_dim, 2 * hidden * self.kv_heads * self.head_dim
        return (
            Matrix("qkv", q + kv, "projections", True, kv_elements=kv, kv_heads=self.kv_heads),
            Matrix("o", self.heads * self.head_dim * hidden, "output", True),
        )

    def kv_bytes_per_token(self, kv: NumberFormat, tp: int = 1, dcp: int = 1) -> float:
        """Of one layer on one rank. With more ranks than heads, several ranks keep the same head, unless DCP divides
        the tokens among them."""
        return 2 * -(-self.kv_heads // tp) * self.head_dim * kv.bytes / dcp

    def kv_bytes_per_sequence(self) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class MlaShape:
    """Latent attention: one vector of `kv_lora_rank + rope_head_dim` per token for all heads (DeepSeek-V2, 2.1).

    Decoding multiplies queries into the latent space (absorbed); `kv_b` is then two products per head, in bf16.
    """

    layers: int
    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    v_head_dim: int

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        down = hidden * (self.q_lora_rank + self.kv_lora_rank + self.rope_head_dim)
        q_up = self.q_lora_rank * self.heads * (self.nope_head_dim + self.rope_head_dim)
        return (
            Matrix("q_a+kv_a", down, "projections", False),
            Matrix("q_b", q_up, "projections", True),
            Matrix("kv_b keys", self.kv_lora_rank * self.heads * self.nope_head_dim, "projections", True, "bf16"),
            Matrix("kv_b values", self.kv_lora_rank * self.heads * self.v_head_dim, "output", True, "bf16"),
            Matrix("o", self.heads * self.v_head_dim * hidden, "output", True),
        )

    @property
    def latent(self) -> int:
        return self.kv_lora_rank + self.rope_head_dim

    def kv_bytes_per_token(self, kv: NumberFormat, tp: int = 1, dcp: int = 1) -> float:
        """Of one layer on one rank: every rank keeps all of it, unless DCP divides the tokens."""
        return self.latent * kv.bytes / dcp

    def kv_bytes_per_sequence(self) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class CompressedShape:
    """DeepSeek-V4: one KV head; `ratio` tokens become one record, beside a window of recent tokens. With an index (CSA)
    a row attends to the `index_topk` best records, without one (HCA) to all, with ratio 0 to the window alone."""

    layers: int
    heads: int
    head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    window: int
    ratio: int
    record_bytes: float
    index_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0
    index_record_bytes: float = 0.0

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        width = self.heads * self.head_dim
        return (
            Matrix("q_a+kv", hidden * (self.q_lora_rank + self.head_dim), "projections", False),
            Matrix("q_b", self.q_lora_rank * width, "projections", True),
            *self._compressor(hidden),
            Matrix("o_a", width * self.o_lora_rank, "output", True),
            Matrix("o_b", self.o_groups * self.o_lora_rank * hidden, "output", True),
        )

    def _compressor(self, hidden: int) -> tuple[Matrix, ...]:
        """Values and gates; twice as wide where windows overlap, which is where an index is."""
        if not self.ratio:
            return ()
        wide = 2 if self.index_heads else 1
        found = [Matrix("compressor", 2 * hidden * wide * self.head_dim, "projections", False)]
        if self.index_heads:
            found += [
                Matrix("index compressor", 2 * hidden * 2 * self.index_head_dim, "projections", False),
                Matrix("index q_b", self.q_lora_rank * self.index_heads * self.index_head_dim, "projections", False),
                Matrix("index weights", hidden * self.index_heads, "projections", False),
            ]
        return tuple(found)

    def kv_bytes_per_token(self, kv: NumberFormat, tp: int = 1, dcp: int = 1) -> float:
        """Of one layer on one rank, without the window. The records' format is fixed: `kv` is not looked at."""
        return (self.record_bytes + self.index_record_bytes) / self.ratio / dcp if self.ratio else 0.0

    def kv_bytes_per_sequence(self) -> float:
        """The window of one layer, on every rank."""
        return self.window * self.record_bytes


AttentionShape = GqaShape | MlaShape | CompressedShape


def kind_of(shape: AttentionShape) -> str:
    """One of KINDS."""
    if isinstance(shape, GqaShape):
        return "gqa"
    return "mla" if isinstance(shape, MlaShape) else "compressed"


def read_attention(table: TomlTable) -> AttentionShape:
    kind = table.text("kind", choices=KINDS)
    if kind == "gqa":
        return _read_gqa(table)
    if kind == "mla":
        names = ("q_lora_rank", "kv_lora_rank", "nope_head_dim", "rope_head_dim", "v_head_dim")
        return MlaShape(table.integer("layers"), table.integer("heads"), *(table.integer(name) for name in names))
    return _read_compressed(table)


def _read_gqa(table: TomlTable) -> GqaShape:
    shape = GqaShape(*(table.integer(name) for name in ("layers", "heads", "kv_heads", "head_dim")))
    if shape.heads % shape.kv_heads:
        raise table.wrong("kv_heads", f"a divisor of heads, {shape.heads}")
    return shape


def _read_compressed(table: TomlTable) -> CompressedShape:
    shape = CompressedShape(
        layers=table.integer("layers"),
        heads=table.integer("heads"),
        head_dim=table.integer("head_dim"),
        q_lora_rank=table.integer("q_lora_rank"),
        o_groups=table.integer("o_groups"),
        o_lora_rank=table.integer("o_lora_rank"),
        window=table.integer("window"),
        ratio=table.integer("ratio", minimum=0),
        record_bytes=table.positive("record_bytes"),
        index_heads=table.integer("index_heads", 0),
        index_head_dim=table.integer("index_head_dim", 0),
        index_topk=table.integer("index_topk", 0),
        index_record_bytes=table.positive("index_record_bytes", 0.0),
    )
    index = (shape.index_heads, shape.index_head_dim, shape.index_topk, shape.index_record_bytes)
    if any(index) and not (all(index) and shape.ratio):
        raise ConfigError(
            f"{table.where}: an index needs ratio, index_heads, index_head_dim, index_topk and index_record_bytes"
            f" together; they are {(shape.ratio, *index)}"
        )
    if (shape.heads * shape.head_dim) % shape.o_groups:
        raise table.wrong("o_groups", f"a divisor of heads x head_dim, {shape.heads * shape.head_dim}")
    return shape


def format_of(matrix: Matrix, attention: NumberFormat) -> NumberFormat:
    return FORMATS[matrix.format] if matrix.format else attention
