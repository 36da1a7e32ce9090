"""Hugging Face configurations: what is read, what is refused, and what the message says."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.base.errors import CheckpointError, ConfigError, UnsupportedFeature
from samovar.spec.checkpoint import spec_from_hf_config
from samovar.spec.model import ModelSpec, RopeSpec

WHERE = "/models/x/config.json"
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "attention_dropout": 0.1,
}
MISTRAL = {**LLAMA, "architectures": ["MistralForCausalLM"], "sliding_window": None}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"]}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


def test_llama() -> None:
    assert spec_from_hf_config(LLAMA, WHERE) == ModelSpec(
        architecture="llama",
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope=RopeSpec(50000.0),
        max_position_embeddings=2048,
    )


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (QWEN2, {"architecture": "qwen2", "qkv_bias": True}),
        (QWEN2 | {"attention_bias": False}, {"qkv_bias": True}),
        (QWEN3, {"architecture": "qwen3", "qk_norm": True, "head_dim": 128}),
        (QWEN3 | {"head_dim": 32, "attention_bias": True}, {"head_dim": 32, "qkv_bias": True, "o_bias": True}),
        (QWEN3 | {"use_sliding_window": False, "sliding_window": 4}, {}),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 2048}, {}),
        (QWEN2 | {"layer_types": ["full_attention"] * 2}, {}),
        (MISTRAL, {"architecture": "mistral"}),
        (MISTRAL | {"sliding_window": 2048}, {}),
        (LLAMA | {"attention_bias": True, "mlp_bias": True}, {"qkv_bias": True, "o_bias": True, "mlp_bias": True}),
        (LLAMA | {"tie_word_embeddings": True}, {"tie_word_embeddings": True}),
        (LLAMA | {"num_key_value_heads": None}, {"num_kv_heads": 4}),
        (LLAMA | {"pretraining_tp": 1, "rope_scaling": None}, {"rope": RopeSpec(50000.0)}),
    ],
)
def test_families_and_settings(config: dict[str, Any], changes: dict[str, Any]) -> None:
    spec = spec_from_hf_config(config, WHERE)
    assert {name: getattr(spec, name) for name in changes} == changes


@pytest.mark.parametrize("field", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("name", ["rope_type", "type"])
def test_rope_by_either_spelling(field: str, name: str) -> None:
    config = LLAMA | {field: {name: "linear", "factor": 2, "rope_theta": 7.0}}
    assert spec_from_hf_config(config, WHERE).rope == RopeSpec(7.0, "linear", {"factor": 2.0})


def test_llama3_rope() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope = spec_from_hf_config(LLAMA | {"rope_scaling": scaling}, WHERE).rope
    wanted = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert rope == RopeSpec(50000.0, "llama3", {**wanted, "original_max_position_embeddings": 2048.0})


@pytest.mark.parametrize(
    ("extra", "attention_factor"),
    [
        ({}, 1.1386294361119891),  # 0.1 ln 4 + 1
        ({"attention_factor": 0.5}, 0.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"factor": None}, 1.1386294361119891),  # 2048 / 512
        ({"factor": 0.5}, 1.0),
    ],
)
def test_yarn_is_complete(extra: dict[str, Any], attention_factor: float) -> None:
    rope = spec_from_hf_config(LLAMA | {"rope_scaling": YARN | extra}, WHERE).rope
    assert rope.kind == "yarn"
    assert rope.parameters["attention_factor"] == pytest.approx(attention_factor, rel=1e-12)
    assert rope.parameters["factor"] == (extra.get("factor") or 4.0)
    assert rope.parameters["original_max_position_embeddings"] == 512.0
    assert (rope.parameters["beta_fast"], rope.parameters["beta_slow"], rope.parameters["truncate"]) == (32.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (LLAMA | {"architectures": ["GemmaForCausalLM"]}, ["architectures", "GemmaForCausalLM"]),
        (LLAMA | {"hidden_act": "gelu"}, ["hidden_act", "gelu", "silu"]),
        (LLAMA | {"pretraining_tp": 2}, ["pretraining_tp", "2"]),
        (LLAMA | {"quantization_config": {"quant_method": "awq"}}, ["quantization_config", "awq"]),
        (LLAMA | {"num_local_experts": 8}, ["num_local_experts", "8"]),
        (LLAMA | {"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        (LLAMA | {"rope_parameters": {"partial_rotary_factor": 0.5}}, ["partial_rotary_factor", "0.5"]),
        (LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, ["rope_type", "dynamic"]),
        (LLAMA | {"rope_scaling": {"type": "longrope"}}, ["type", "longrope"]),
        (QWEN2 | {"rope_scaling": {"type": "default", "mrope_section": [4, 2, 2]}}, ["mrope_section"]),
        (LLAMA | {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, ["full_attention"]),
        (LLAMA | {"head_dim": 15}, ["head_dim", "15"]),
        (MISTRAL | {"sliding_window": 1024}, ["sliding_window", "1024", "2048"]),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 1024}, ["sliding_window", "1024"]),
        (QWEN3 | {"layer_types": ["full_attention", "sliding_attention"]}, ["layer_types", "sliding_attention"]),
        (QWEN3 | {"layer_types": ["linear_attention"]}, ["layer_types", "linear_attention"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(config: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        spec_from_hf_config(config, WHERE)
    for name in [WHERE, *names]:
        assert name in str(caught.value)


def test_mistral_without_the_field_has_the_default_window() -> None:
    config = {name: value for name, value in MISTRAL.items() if name != "sliding_window"}
    spec_from_hf_config(config, WHERE)
    with pytest.raises(UnsupportedFeature, match="sliding_window"):
        spec_from_hf_config(config | {"max_position_embeddings": 8192}, WHERE)


REQUIRED = [name for name in LLAMA if name not in ("rope_theta", "attention_dropout", "num_key_value_heads")]


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("value", [None, "x", -3, True, [1], {}])
def test_missing_and_ill_typed_fields_are_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        spec_from_hf_config(LLAMA | {field: value}, WHERE)
    assert isinstance(caught.value, CheckpointError)
    assert field in str(caught.value) and WHERE in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 3},
        {"num_attention_heads": 7, "num_key_value_heads": 7},  # 64 / 7
        {"rope_scaling": "linear"},
        {"rope_scaling": {"rope_type": "linear"}},
        {"rope_theta": float("nan")},
        {"layer_types": "full_attention"},
        {"tie_word_embeddings": "yes"},
        {"architectures": []},
    ],
)
def test_settings_that_contradict_each_other(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        spec_from_hf_config(LLAMA | change, WHERE)


def test_key_value_heads_have_no_default_outside_llama() -> None:
    with pytest.raises(CheckpointError, match="num_key_value_heads is missing"):
        spec_from_hf_config(QWEN2 | {"num_key_value_heads": None}, WHERE)
