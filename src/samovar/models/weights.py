"""A model's weights in the form the forward uses, assembled from a file's tensors one at a time.

Matrices that see the same input are one matrix (q, k and v; gate and up). Each source tensor is written straight into
its rows of the result, so never more than one of them exists twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from samovar.base.errors import CheckpointError
from samovar.spec.model import ModelSpec

ROPE_FACTORS = "rope_freqs.weight"
"""GGUF only: divides the rotary frequencies."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Matrices are [out, in]. H, Hkv: heads; D: head dimension; I: intermediate size."""

    input_norm: Tensor
    qkv: Tensor
    """[(H + 2 Hkv) D, hidden]"""
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    """[H + Hkv, D]: q's norm for every query head, then k's."""
    o: Tensor
    o_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    """[2 I, hidden]"""
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Weights:
    """All of one dtype, except `rope_factors` (float32)."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    lm_head: Tensor
    """[vocab, hidden]; the embedding itself when the two are tied."""
    rope_factors: Tensor | None = None


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A matrix as its file holds it."""

    kind: str
    """GGUF's name of the type: F32, F16, BF16, Q4_1, Q6_K, ..."""
    rows: NDArray[np.uint8]
    """[n, bytes of a row], a view of the mapped file where it can be."""
    order: NDArray[np.int32] | None
    """Row i of the matrix is row order[i] of the file; None: they are in order."""


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A checkpoint's tensors under their Hugging Face names."""

    shapes: Mapping[str, tuple[int, ...]]
    label: Callable[[str], str]
    """For messages: the file (or where it should be) and the tensor by the name it has there."""
    read_into: Callable[[str, Tensor], None]
    """Writes a tensor into one of its shape, converting to its dtype."""
    stored: Callable[[str], StoredRows]
    """A matrix's bytes."""


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Every tensor the spec asks for."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    matrices = {
        "self_attn.q_proj": (q, hidden, spec.qkv_bias),
        "self_attn.k_proj": (kv, hidden, spec.qkv_bias),
        "self_attn.v_proj": (kv, hidden, spec.qkv_bias),
        "self_attn.o_proj": (hidden, q, spec.o_bias),
        "mlp.gate_proj": (inner, hidden, spec.mlp_bias),
        "mlp.up_proj": (inner, hidden, spec.mlp_bias),
        "mlp.down_proj": (hidden, inner, spec.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (spec.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not spec.tie_word_embeddings:
        shapes["lm_head.weight"] = (spec.vocab_size, hidden)
    for layer in range(spec.num_layers):
        at = f"model.layers.{layer}."
        shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = (hidden,)
        if spec.qk_norm:
            shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = (spec.head_dim,)
        for name, (rows, columns, bias) in matrices.items():
            shapes[f"{at}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{at}{name}.bias"] = (rows,)
    return shapes


def assemble(spec: ModelSpec, source: TensorSource, dtype: torch.dtype) -> Weights:
    """Raises CheckpointError for a tensor that is missing, unexpected or of another shape; nothing is read before all
    are known to fit."""
    expected = expected_shapes(spec)
    check_fits(spec, source, expected)

    def joined(*names: str) -> Tensor:
        shapes = [expected[name] for name in names]
        rows = [shape[0] for shape in shapes]
        whole = torch.empty((sum(rows), *shapes[0][1:]), dtype=dtype)
        for name, part in zip(names, torch.split(whole, rows), strict=True):
            source.read_into(name, part)
        return whole

    def joined_if(wanted: bool, *names: str) -> Tensor | None:
        return joined(*names) if wanted else None

    def layer(index: int) -> LayerWeights:
        at = f"model.layers.{index}."
        qkv = [f"{at}self_attn.{x}_proj" for x in "qkv"]
        gate_up = [f"{at}mlp.{x}_proj" for x in ("gate", "up")]
        o, down = f"{at}self_attn.o_proj", f"{at}mlp.down_proj"
        return LayerWeights(
            input_norm=joined(at + "input_layernorm.weight"),
            qkv=joined(*(f"{x}.weight" for x in qkv)),
            qkv_bias=joined_if(spec.qkv_bias, *(f"{x}.bias" for x in qkv)),
            qk_norm=_qk_norm(spec, at, joined) if spec.qk_norm else None,
            o=joined(f"{o}.weight"),
            o_bias=joined_if(spec.o_bias, f"{o}.bias"),
            post_norm=joined(at + "post_attention_layernorm.weight"),
            gate_up=joined(*(f"{x}.weight" for x in gate_up)),
            gate_up_bias=joined_if(spec.mlp_bias, *(f"{x}.bias" for x in gate_up)),
            down=joined(f"{down}.weight"),
            down_bias=joined_if(spec.mlp_bias, f"{down}.bias"),
        )

    embed = joined("model.embed_tokens.weight")
    lm_head = embed if spec.tie_word_embeddings else joined("lm_head.weight")
    layers = tuple(layer(index) for index in range(spec.num_layers))
    return Weights(embed, layers, joined("model.norm.weight"), lm_head, read_rope_factors(spec, source))


def _qk_norm(spec: ModelSpec, at: str, joined: Callable[..., Tensor]) -> Tensor:
    q, k = joined(at + "self_attn.q_norm.weight"), joined(at + "self_attn.k_norm.weight")
    return torch.cat((q.expand(spec.num_heads, -1), k.expand(spec.num_kv_heads, -1)))


def read_rope_factors(spec: ModelSpec, source: TensorSource) -> Tensor | None:
    if ROPE_FACTORS not in source.shapes:
        return None
    factors = torch.empty(spec.head_dim // 2, dtype=torch.float32)
    source.read_into(ROPE_FACTORS, factors)
    return factors


def check_fits(spec: ModelSpec, source: TensorSource, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raises CheckpointError unless the source's tensors are the expected ones."""
    missing = [name for name in expected if name not in source.shapes]
    if missing:
        raise CheckpointError(f"{source.label(missing[0])} is missing{_and_more(missing)}")
    unexpected = [name for name in source.shapes if name not in expected and not _harmless(name)]
    if unexpected:
        raise CheckpointError(
            f"{source.label(unexpected[0])} is not part of a {spec.architecture} model with"
            f" these settings{_and_more(unexpected)}"
        )
    wanted_shapes = {**expected, ROPE_FACTORS: (spec.head_dim // 2,)}
    for name, shape in source.shapes.items():
        wanted = wanted_shapes.get(name)
        if wanted is not None and shape != wanted:
            raise CheckpointError(f"{source.label(name)} has shape {list(shape)}; the settings ask for {list(wanted)}")


def _harmless(name: str) -> bool:
    """Tensors whose absence changes nothing: frequencies, which the settings give as well, and the copy of a tied
    embedding that some checkpoints keep (an output matrix of its own is expected, hence not asked about here)."""
    return name.endswith("rotary_emb.inv_freq") or name in ("lm_head.weight", ROPE_FACTORS)


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
