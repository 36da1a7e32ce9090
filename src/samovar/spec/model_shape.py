"""A model as the cost model counts it: layers, experts, formats; parameters, weight bytes and KV bytes from them.

`spec.model.ModelSpec` is what the runner builds; this one also describes models that the runner cannot run.
Norms, biases and small vectors are left out: together they are less than a thousandth of the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from samovar.spec.attention_shape import AttentionShape, CompressedShape, GqaShape, read_attention
from samovar.spec.model import ModelSpec
from samovar.spec.number_format import FORMATS, NumberFormat
from samovar.spec.toml_table import TomlTable


@dataclass(frozen=True, slots=True)
class MoeShape:
    """Layers with experts: three matrices of hidden x intermediate each."""

    layers: int
    experts: int
    top_k: int
    intermediate_size: int
    shared_intermediate_size: int
    """Of all shared experts of a layer together; 0 without any."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """The model's own draft layers (MTP): each drafted token runs through one, then the head."""

    attention: AttentionShape


@dataclass(frozen=True, slots=True)
class WeightFormats:
    attention: NumberFormat
    ffn: NumberFormat
    """Dense layers and shared experts."""
    experts: NumberFormat
    head: NumberFormat
    """Embeddings and output head."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    name: str
    source: str
    date: str
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    block_tokens: int
    """Of the engine's KV block."""
    attention: tuple[AttentionShape, ...]
    """One entry per kind of layer; their `layers` add up to the model's."""
    dense_layers: int
    dense_intermediate_size: int
    moe: MoeShape | None
    draft: DraftShape | None
    formats: WeightFormats
    kv_format: NumberFormat
    seam_kernels: int
    """Small kernels of a layer that belong to no module: norms, residual streams, routing, quantising."""

    @property
    def num_layers(self) -> int:
        return sum(shape.layers for shape in self.attention)

    @property
    def attention_parameters(self) -> int:
        return sum(shape.layers * parameters_of(shape, self.hidden_size) for shape in self.attention)

    @property
    def expert_parameters(self) -> int:
        """Of one routed expert."""
        return 3 * self.hidden_size * self.moe.intermediate_size if self.moe else 0

    @property
    def shared_parameters(self) -> int:
        """Of one layer's shared experts."""
        return 3 * self.hidden_size * self.moe.shared_intermediate_size if self.moe else 0

    @property
    def router_parameters(self) -> int:
        """Of one layer."""
        return self.hidden_size * self.moe.experts if self.moe else 0

    @property
    def dense_parameters(self) -> int:
        """Of one dense layer's feed-forward part."""
        return 3 * self.hidden_size * self.dense_intermediate_size

    @property
    def embedding_parameters(self) -> int:
        """Embeddings and head."""
        return self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)

    def num_parameters(self) -> int:
        """Without draft layers."""
        return self._parameters(self.moe.experts if self.moe else 0)

    def num_active_parameters(self) -> int:
        """That one token meets, embeddings and head included."""
        return self._parameters(self.moe.top_k if self.moe else 0)

    def _parameters(self, experts: int) -> int:
        each = experts * self.expert_parameters + self.shared_parameters + self.router_parameters
        moe = self.moe.layers * each if self.moe else 0
        dense = self.dense_layers * self.dense_parameters
        return self.attention_parameters + moe + dense + self.embedding_parameters

    def kv_bytes_per_token(self, kv: NumberFormat | None = None, tp: int = 1, dcp: int = 1) -> float:
        """Over all layers, on one rank, without windows."""
        kept = kv or self.kv_format
        return sum(shape.layers * shape.kv_bytes_per_token(kept, tp, dcp) for shape in self.attention)

    def kv_bytes_per_sequence(self) -> float:
        """Windows of all layers, on every rank."""
        return sum(shape.layers * shape.kv_bytes_per_sequence() for shape in self.attention)


def parameters_of(shape: AttentionShape, hidden: int) -> int:
    """Of one layer's attention."""
    return sum(matrix.elements for matrix in shape.matrices(hidden))


def shape_of(spec: ModelSpec, weights: NumberFormat, kv: NumberFormat, block_tokens: int) -> ModelShape:
    """The shape of a model that the runner builds."""
    return ModelShape(
        name=spec.architecture,
        source="its checkpoint",
        date="",
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        tied_embeddings=spec.tie_word_embeddings,
        block_tokens=block_tokens,
        attention=(GqaShape(spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim),),
        dense_layers=spec.num_layers,
        dense_intermediate_size=spec.intermediate_size,
        moe=None,
        draft=None,
        formats=WeightFormats(weights, weights, weights, weights),
        kv_format=kv,
        seam_kernels=3,
    )


def read_model(table: TomlTable) -> ModelShape:
    """Raises ConfigError, also for layers that do not add up."""
    attention = tuple(read_attention(part) for part in table.tables("attention"))
    dense = table.table("dense") if table.has("dense") else None
    moe = _read_moe(table.table("moe")) if table.has("moe") else None
    model = ModelShape(
        name=table.text("name"),
        source=table.text("source"),
        date=table.day("date"),
        hidden_size=table.integer("hidden_size"),
        vocab_size=table.integer("vocab_size"),
        tied_embeddings=table.flag("tied_embeddings", False),
        block_tokens=table.integer("block_tokens"),
        attention=attention,
        dense_layers=dense.integer("layers") if dense else 0,
        dense_intermediate_size=dense.integer("intermediate_size") if dense else 0,
        moe=moe,
        draft=DraftShape(read_attention(table.table("draft"))) if table.has("draft") else None,
        formats=_read_formats(table.table("formats"), moe is not None),
        kv_format=FORMATS[table.text("kv_format", choices=FORMATS)],
        seam_kernels=table.integer("seam_kernels", minimum=0),
    )
    table.done()
    _check(model, table)
    return model


def _read_moe(table: TomlTable) -> MoeShape:
    moe = MoeShape(
        layers=table.integer("layers"),
        experts=table.integer("experts"),
        top_k=table.integer("top_k"),
        intermediate_size=table.integer("intermediate_size"),
        shared_intermediate_size=table.integer("shared_intermediate_size", 0),
    )
    if moe.top_k > moe.experts:
        raise table.wrong("top_k", f"at most experts, {moe.experts}")
    return moe


def _read_formats(table: TomlTable, moe: bool) -> WeightFormats:
    def named(name: str) -> NumberFormat:
        return FORMATS[table.text(name, choices=FORMATS)]

    ffn = named("ffn")
    return WeightFormats(named("attention"), ffn, named("experts") if moe else ffn, named("head"))


def _check(model: ModelShape, table: TomlTable) -> None:
    with_ffn = model.dense_layers + (model.moe.layers if model.moe else 0)
    if with_ffn != model.num_layers:
        raise table.wrong(
            "attention", f"of as many layers as dense and moe together: {with_ffn}, not {model.num_layers}"
        )
    if model.draft and model.draft.attention.layers != 1:
        raise table.wrong("draft", "one layer")
    compressed = any(isinstance(shape, CompressedShape) for shape in model.attention)
    if compressed and model.kv_format.name != "fp8":
        raise table.wrong("kv_format", "fp8, as compressed attention keeps its records")
