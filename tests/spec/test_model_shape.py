"""Parameters, weights and KV from shapes, against what the models' names and published figures say."""

from __future__ import annotations

import pytest

from samovar.spec.catalog import known, load_model
from samovar.spec.model import ModelSpec, RopeSpec
from samovar.spec.model_shape import shape_of
from samovar.spec.number_format import FORMATS

MODELS = known("models")


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("deepseek-r1", 671.0, 37.6),
        ("deepseek-v3", 671.0, 37.6),
        ("kimi-k2.6", 1026, 32.9),
        ("deepseek-v4-pro", 1573, 49.7),
        ("deepseek-v4-flash", 284, None),  # "13 B" is rounded; 13.76 counted
        ("qwen3-coder-480b", 480.2, 35.4),
        ("qwen3-235b", 235.1, 22.2),
        ("smollm2-135m", 0.1345, 0.1345),
    ],
)
def test_parameters(name: str, total: float, active: float | None) -> None:
    model = load_model(name)
    assert model.num_parameters() / 1e9 == pytest.approx(total, rel=0.01)
    if active is not None:
        assert model.num_active_parameters() / 1e9 == pytest.approx(active, rel=0.01)


def test_every_model_is_checked() -> None:
    assert set(MODELS) == {
        "deepseek-r1", "deepseek-v3", "deepseek-v4-flash", "deepseek-v4-pro", "kimi-k2.6", "qwen3-235b",
        "qwen3-coder-480b", "smollm2-135m",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kv", "per_token"),
    [
        ("deepseek-r1", "bf16", 70_272),
        ("deepseek-r1", "fp8", 35_136),
        ("kimi-k2.6", "bf16", 70_272),
        ("kimi-k2.6", "fp8", 35_136),
        ("qwen3-coder-480b", "bf16", 253_952),
        ("qwen3-coder-480b", "fp8", 126_976),
        ("qwen3-235b", "bf16", 192_512),
        ("smollm2-135m", "bf16", 23_040),
    ],
)
def test_kv_bytes_per_token(name: str, kv: str, per_token: int) -> None:
    assert load_model(name).kv_bytes_per_token(FORMATS[kv]) == per_token


@pytest.mark.parametrize(("name", "per_token"), [("deepseek-v4-pro", 5050), ("deepseek-v4-flash", 3550)])
def test_kv_bytes_of_compressed_attention(name: str, per_token: int) -> None:
    """As published for sequences of 128k tokens, each of which keeps its windows besides."""
    model = load_model(name)
    with_windows = model.kv_bytes_per_token() + model.kv_bytes_per_sequence() / 131_072
    assert with_windows == pytest.approx(per_token, rel=0.01)


def test_windows_of_a_sequence() -> None:
    assert load_model("deepseek-v4-pro").kv_bytes_per_sequence() == pytest.approx(4.6e6, rel=0.01)


def test_attention_parameters_of_a_layer() -> None:
    """Millions, as published: R1 187.1, K2 101.1, V4-Pro 299.9 and 31.4 more for CSA, 7.3 for HCA."""
    r1, k2, v4 = load_model("deepseek-r1"), load_model("kimi-k2.6"), load_model("deepseek-v4-pro")
    csa, hca = (sum(m.elements for m in shape.matrices(v4.hidden_size)) for shape in v4.attention)
    assert r1.attention_parameters / 61e6 == pytest.approx(187.1, abs=0.05)
    assert k2.attention_parameters / 61e6 == pytest.approx(101.1, abs=0.05)
    assert csa / 1e6 == pytest.approx(299.9 + 31.4, abs=0.1) and hca / 1e6 == pytest.approx(299.9 + 7.3, abs=0.1)


def test_kv_of_a_rank() -> None:
    qwen, k2, v4 = load_model("qwen3-235b"), load_model("kimi-k2.6"), load_model("deepseek-v4-pro")
    bf16, fp8 = FORMATS["bf16"], FORMATS["fp8"]
    assert qwen.kv_bytes_per_token(bf16, tp=4) == 192_512 / 4
    assert qwen.kv_bytes_per_token(bf16, tp=8) == 192_512 / 4, "four KV heads: two ranks keep the same one"
    assert qwen.kv_bytes_per_token(bf16, tp=8, dcp=2) == 192_512 / 8
    assert k2.kv_bytes_per_token(fp8, tp=8) == 35_136
    assert k2.kv_bytes_per_token(fp8, tp=8, dcp=8) == 35_136 / 8
    assert v4.kv_bytes_per_token(fp8, tp=8, dcp=8) == pytest.approx(v4.kv_bytes_per_token() / 8)


def test_the_runners_own_spec_gives_the_same_counts() -> None:
    spec = ModelSpec("llama", 49_152, 576, 1536, 30, 9, 3, 64, 1e-5, RopeSpec(1e5), 8192, True)
    model = shape_of(spec, FORMATS["bf16"], FORMATS["bf16"], 16)
    norms = 30 * 2 * 576 + 576
    assert model.num_parameters() == spec.num_parameters() - norms == load_model("smollm2-135m").num_parameters()
    assert model.kv_bytes_per_token() == spec.kv_bytes_per_token(2)
