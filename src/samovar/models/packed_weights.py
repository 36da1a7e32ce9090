"""A model's weights for the packed ops: matrices in records, everything else float32."""

from __future__ import annotations

from dataclasses import dataclass
import logging

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from samovar.kernels.packed_ops import PackedOps
from samovar.models.packing import PackedMatrix, Packer, Part, alternating, one_after_the_other
from samovar.models.weights import TensorSource, check_fits, expected_shapes, read_rope_factors
from samovar.spec.dtype import Quantization
from samovar.spec.model import ModelSpec

log = logging.getLogger(__name__)

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """H, Hkv: heads; D: head dimension; I: intermediate size."""

    input_norm: Vector
    qkv: PackedMatrix
    """(H + 2 Hkv) D outputs"""
    qkv_bias: Vector | None
    q_norm: Vector | None
    """[D], as k_norm."""
    k_norm: Vector | None
    o: PackedMatrix
    o_bias: Vector | None
    post_norm: Vector
    gate_up: PackedMatrix
    """2 I outputs, alternating as `SWIGLU_COLUMNS` says; the bias likewise."""
    gate_up_bias: Vector | None
    down: PackedMatrix
    down_bias: Vector | None


@dataclass(frozen=True, slots=True)
class PackedWeights:
    embed: PackedMatrix
    layers: tuple[PackedLayer, ...]
    norm: Vector
    lm_head: PackedMatrix
    """The embedding itself when the two are tied."""
    rope_factors: Tensor | None = None

    def matrices(self) -> tuple[PackedMatrix, ...]:
        """Every one once."""
        inner = [matrix for layer in self.layers for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down)]
        outer = [self.embed] if self.lm_head is self.embed else [self.embed, self.lm_head]
        return (*outer, *inner)


def assemble_packed(spec: ModelSpec, source: TensorSource, ops: PackedOps, quantization: Quantization) -> PackedWeights:
    """Raises CheckpointError for a tensor that is missing, unexpected or of another shape; nothing is read before all
    are known to fit."""
    check_fits(spec, source, expected_shapes(spec))
    packer = Packer(source, ops, quantization)
    embed = packer.matrix(_whole(source, "model.embed_tokens.weight"))
    weights = PackedWeights(
        embed=embed,
        layers=tuple(_layer(spec, source, packer, index) for index in range(spec.num_layers)),
        norm=packer.vector(_whole(source, "model.norm.weight")),
        lm_head=embed if spec.tie_word_embeddings else packer.matrix(_whole(source, "lm_head.weight")),
        rope_factors=read_rope_factors(spec, source),
    )
    log.info("weights: %s", packer.report())
    return weights


def _layer(spec: ModelSpec, source: TensorSource, packer: Packer, index: int) -> PackedLayer:
    at = f"model.layers.{index}."
    q, kv, inner = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, spec.intermediate_size
    qkv = [f"{at}self_attn.{x}_proj" for x in "qkv"]
    gate, up = f"{at}mlp.gate_proj", f"{at}mlp.up_proj"
    o, down = f"{at}self_attn.o_proj", f"{at}mlp.down_proj"

    def joined(kind: str) -> tuple[Part, ...]:
        return one_after_the_other([f"{name}.{kind}" for name in qkv], (q, kv, kv))

    def vector(name: str, wanted: bool = True) -> Vector | None:
        return packer.vector(_whole(source, name)) if wanted else None

    return PackedLayer(
        input_norm=packer.vector(_whole(source, at + "input_layernorm.weight")),
        qkv=packer.matrix(joined("weight")),
        qkv_bias=packer.vector(joined("bias")) if spec.qkv_bias else None,
        q_norm=vector(at + "self_attn.q_norm.weight", spec.qk_norm),
        k_norm=vector(at + "self_attn.k_norm.weight", spec.qk_norm),
        o=packer.matrix(_whole(source, f"{o}.weight")),
        o_bias=vector(f"{o}.bias", spec.o_bias),
        post_norm=packer.vector(_whole(source, at + "post_attention_layernorm.weight")),
        gate_up=packer.matrix(alternating(f"{gate}.weight", f"{up}.weight", inner)),
        gate_up_bias=packer.vector(alternating(f"{gate}.bias", f"{up}.bias", inner)) if spec.mlp_bias else None,
        down=packer.matrix(_whole(source, f"{down}.weight")),
        down_bias=vector(f"{down}.bias", spec.mlp_bias),
    )


def _whole(source: TensorSource, name: str) -> tuple[Part, ...]:
    return one_after_the_other([name], [source.shapes[name][0]])
