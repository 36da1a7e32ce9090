"""GGUF metadata: what is read, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.spec.checkpoint import spec_from_gguf_metadata
from samovar.spec.model import ModelSpec, RopeSpec

WHERE = "/models/x.gguf"
LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 128,
}


def read(changes: dict[str, Any] | None = None, tensors: tuple[str, ...] = ()) -> ModelSpec:
    return spec_from_gguf_metadata(LLAMA | (changes or {}), WHERE, tensors)


def test_llama() -> None:
    assert read(tensors=("output.weight",)) == ModelSpec(
        architecture="llama",
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope=RopeSpec(10000.0),
        max_position_embeddings=2048,
    )


def test_tensors_tell_ties_and_biases() -> None:
    spec = read(tensors=("blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_down.bias"))
    assert (spec.tie_word_embeddings, spec.qkv_bias, spec.o_bias, spec.mlp_bias) == (True, True, True, True)
    spec = read(tensors=("output.weight",))
    assert (spec.tie_word_embeddings, spec.qkv_bias, spec.o_bias, spec.mlp_bias) == (False, False, False, False)


def test_qwen3_and_vocabulary_without_a_field() -> None:
    meta = {name.replace("llama.", "qwen3."): value for name, value in LLAMA.items() if "vocab" not in name}
    meta |= {
        "general.architecture": "qwen3",
        "tokenizer.ggml.tokens": ["a", "b", "c"],
        "qwen3.attention.key_length": 32,
    }
    spec = spec_from_gguf_metadata(meta, WHERE, ())
    assert (spec.qk_norm, spec.vocab_size, spec.head_dim) == (True, 3, 32)


def test_rope_scaling() -> None:
    scaling = {"llama.rope.freq_base": 5e5, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert read(scaling).rope == RopeSpec(5e5, "linear", {"factor": 4.0})
    assert read({"llama.rope.scale_linear": 2.0}).rope == RopeSpec(10000.0, "linear", {"factor": 2.0})
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.original_context_length": 512}
    rope = read(yarn | {"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.attn_factor": 0.5}).rope
    assert rope.kind == "yarn" and rope.parameters["original_max_position_embeddings"] == 512.0
    assert rope.parameters["attention_factor"] == pytest.approx(1.1386294361119891 / 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("general.architecture", "gemma"),
        ("split.count", 2),
        ("llama.expert_count", 8),
        ("llama.attention.sliding_window", 512),
        ("llama.attention.causal", False),
        ("llama.attention.value_length", 32),
        ("llama.attention.key_length", 15),
        ("llama.rope.dimension_count", 8),
        ("llama.rope.dimension_sections", [4, 4]),
        ("llama.rope.scaling.type", "longrope"),
        ("llama.logit_scale", 2.0),
    ],
)
def test_what_is_not_supported_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        read({field: value})
    assert field in str(caught.value) and str(value) in str(caught.value) and WHERE in str(caught.value)


@pytest.mark.parametrize("field", [name for name in LLAMA if name != "llama.attention.head_count_kv"])
def test_missing_fields_are_named(field: str) -> None:
    with pytest.raises(CheckpointError, match=field):
        read({field: None})


def test_per_layer_head_counts_are_refused() -> None:
    with pytest.raises(CheckpointError, match="head_count_kv"):
        read({"llama.attention.head_count_kv": [2, 4]})
