"""Configurations as flags: those of `samovar serve` are known to it, vLLM's have its names and forms."""

from __future__ import annotations

import json

import typer

from samovar.cli.serve import serve
from samovar.kv.settings import tiers_of
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_flags import serve_flags, simulate_flags, vllm_flags, vllm_notes
from samovar.sim.settings import Acceptance
from tests.sim.plan_made import hardware, setup

HOST = hardware("deepseek-v4-pro")
DEEP = setup(
    layout=Layout(dp=8, ep=True, moe_comm="fused"),
    max_num_seqs=16,
    prefill_schedule_interval=8,
    long_prefill_token_threshold=512,
    acceptance=Acceptance(3, 2.49),
    retention_policy="agent",
    tiers=tiers_of(offloading_size="64"),
)


def test_of_vllm() -> None:
    words = vllm_flags(HOST, DEEP)
    assert words[: words.index("--speculative-config")] == [
        "--tensor-parallel-size", "1", "--data-parallel-size", "8", "--enable-expert-parallel",
        "--max-num-seqs", "16", "--max-num-batched-tokens", "8192", "--prefill-schedule-interval", "8",
        "--long-prefill-token-threshold", "512", "--max-model-len", "100000", "--gpu-memory-utilization", "0.9",
    ]  # fmt: skip
    drafting = json.loads(words[words.index("--speculative-config") + 1])
    assert drafting == {"method": "mtp", "num_speculative_tokens": 3}
    assert words[words.index("--kv-offloading-size") + 1] == "8"
    notes = "; ".join(vllm_notes(HOST, DEEP))
    assert "keep each session on one rank" in notes and "retention policy agent" in notes


def test_of_dcp_and_mono() -> None:
    dcp = vllm_flags(HOST, setup(layout=Layout(tp=8, dcp=8, dcp_comm="a2a", dcp_q_replicate=True)))
    assert dcp[:6] == [
        "--tensor-parallel-size",
        "8",
        "--decode-context-parallel-size",
        "8",
        "--dcp-comm-backend",
        "a2a",
    ]
    assert "--dcp-q-replicate" in dcp and "--data-parallel-size" not in dcp
    split = setup(layout=Layout(tp=8, dcp=8))
    assert vllm_notes(HOST, split) == ["vLLM has no decode context parallelism for attention with sliding windows"]
    assert vllm_notes(hardware("kimi-k2.6"), split) == []
    mono = setup(layout=Layout(tp=8, mode="mono"))
    assert "--monokernel" in vllm_flags(HOST, mono)
    assert vllm_notes(HOST, mono) == []
    alone = vllm_notes(HOST, setup(layout=Layout(tp=4), prefill_schedule_interval=4))
    assert alone[0] == "start 2 of these and keep every session on one of them"
    assert "does nothing without data parallelism" in alone[1]


def test_of_samovar_are_known_to_it() -> None:
    app = typer.Typer()
    app.command()(serve)
    command = typer.main.get_command(app)
    for one in (DEEP, setup(layout=Layout(tp=8, mode="mono")), setup(retention_policy="ttl", retention_ttl_s=60.0)):
        with command.make_context("serve", serve_flags(HOST, one)) as context:
            assert context.params["max_num_seqs"] == one.max_num_seqs
            assert context.params["retention_policy"] == one.retention_policy
            assert context.params["monokernel"] == ("on" if one.layout.mode == "mono" else "off")
    with command.make_context("serve", serve_flags(HOST, DEEP)) as context:
        assert context.params["kv_offloading_size"] == "8GiB"


def test_only_what_was_chosen_is_named() -> None:
    words = simulate_flags(HOST, setup(), "deepseek-v4-pro", "b200")
    for flag in ("--data-parallel-size", "--moe-comm", "--monokernel", "--num-speculative-tokens", "--kv-cache-dtype"):
        assert flag not in words
    eager = simulate_flags(HOST, setup(layout=Layout(tp=8, mode="eager", overlap=0.5, kv_format="fp8")), "m", "d")
    assert "--enforce-eager" in eager
    given = simulate_flags(HOST, setup(num_gpu_blocks_override=100, gpu_memory_utilization=0.8), "m", "d")
    assert given[given.index("--num-gpu-blocks-override") + 1] == "100" and "--gpu-memory-utilization" not in given
