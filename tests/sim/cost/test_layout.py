"""Layouts that a model cannot have are refused in the engine's own words."""

from __future__ import annotations

import pytest

from samovar.base.errors import ConfigError
from samovar.sim.cost.layout import Layout
from samovar.spec.catalog import load_model


@pytest.mark.parametrize(
    ("model", "layout", "message"),
    [
        ("kimi-k2.6", Layout(tp=0), "--tensor-parallel-size is 0; it must be at least 1"),
        ("kimi-k2.6", Layout(dp=-1), "--data-parallel-size is -1; it must be at least 1"),
        ("kimi-k2.6", Layout(tp=7), "--tensor-parallel-size is 7; it must divide the 64 heads of Kimi-K2.6"),
        (
            "kimi-k2.6",
            Layout(tp=8, dcp=3),
            "--decode-context-parallel-size is 3; it must divide --tensor-parallel-size, 8",
        ),
        (
            "qwen3-235b",
            Layout(tp=8, dcp=4),
            "Qwen3-235B-A22B has 4 KV heads, so at most 2 of 8 ranks keep the same one",
        ),
        ("deepseek-r1", Layout(dp=7, ep=True), "256 experts of DeepSeek-R1 are no multiple of 7 devices"),
        ("smollm2-135m", Layout(dp=2), "SmolLM2-135M has no experts: its ranks do not wait for each other"),
        ("smollm2-135m", Layout(ep=True), "--enable-expert-parallel: SmolLM2-135M has no experts"),
        ("kimi-k2.6", Layout(kv_format="fp3"), "--kv-cache-dtype is 'fp3'; known: auto, fp32, bf16"),
        ("kimi-k2.6", Layout(overlap=1.5), "overlap is 1.5; it must be between 0 and 1"),
        ("kimi-k2.6", Layout(mode="fast"), "mode is 'fast'; it must be one of eager, graph, mono"),  # type: ignore[arg-type]
        ("kimi-k2.6", Layout(moe_comm="x"), "moe_comm is 'x'; it must be one of fused, a2a, ag_rs"),  # type: ignore[arg-type]
        ("kimi-k2.6", Layout(dp=8, ep=True, mode="mono"), "--monokernel works with tensor parallelism alone"),
    ],
)
def test_refused(model: str, layout: Layout, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        layout.check(load_model(model))
    assert message in raised.value.message


@pytest.mark.parametrize(
    "layout", [Layout(tp=8), Layout(tp=8, dcp=8), Layout(dp=8, ep=True), Layout(tp=4, dp=2), Layout(tp=8, mode="mono")]
)
def test_accepted(layout: Layout) -> None:
    layout.check(load_model("kimi-k2.6"))
    assert layout.devices == 8


def test_kv_format() -> None:
    model = load_model("kimi-k2.6")
    assert Layout().kv(model).name == "fp8" and Layout(kv_format="bf16").kv(model).name == "bf16"
