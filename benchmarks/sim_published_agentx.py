"""DeepSeek-V4-Pro under AgentX load: a whole run in every figure, chunk limits, and which rank a session goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from benchmarks.sim_published_form import Figure, Progress, Row, Seen, at_least, at_most, between, points, within
from benchmarks.sim_published_loads import agents
from benchmarks.sim_published_seen import for_share, run

from samovar.sim.cost.layout import Layout
from samovar.sim.plan_setup import Hardware, Rules, Setup
from samovar.sim.settings import Acceptance, BalancerName
from samovar.spec.catalog import load_device, load_model
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script
from samovar.workload.synth_config import SynthConfig

LOAD = SynthConfig(
    sessions=160,
    seed=6,
    input_median=79_102,
    input_p90=330_000,
    output_median=441.5,
    output_p90=2_221,
    gap_median_s=3,
    gap_p90_s=30,
    block_tokens=256,
)
"""So that an hour of 64 lanes sees what T6's did: 126,019 prompt tokens a request, 984 generated ones (P90 2,221), and
1.82 requests a second."""
DEP8 = Layout(dp=8, ep=True, moe_comm="fused")
B200_KV_TOKENS = 21_965_416
"""Of all ranks, as T6's engine reported."""
T6 = Setup(
    layout=DEP8,
    max_model_len=1_048_576,
    max_num_seqs=16,
    max_num_batched_tokens=8192,
    prefill_schedule_interval=8,
    long_prefill_token_threshold=512,
    num_gpu_blocks_override=B200_KV_TOKENS // 8 // 256,
    acceptance=Acceptance(drafts=3, mean_tokens=2.49),
    balancer="hash",
)
RULES = Rules(replay=ReplayConfig(concurrency=64, warmup_calls=10), duration_s=3600)


@cache
def load() -> tuple[Script, ...]:
    return agents(LOAD)


def hardware(device: str) -> Hardware:
    return Hardware(load_model("deepseek-v4-pro"), load_device(device), 8)


def t6_run(share: float, progress: Progress) -> Seen:
    return run(hardware("B200"), T6, for_share(RULES, share), load(), progress)


def t6_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    run = seen["run"]

    def figure(what: str, name: str, published: float, share: float, unit: str, reason: str = "") -> Figure:
        return Figure(what, f"{published:,g} {unit}".strip(), run[name], within(published, share), unit, reason=reason)

    def part(what: str, name: str, published: float) -> Figure:
        return Figure(what, f"{published:g} %", run[name], points(published, 3), "%")

    return (
        figure("tokens per GPU and second", "tokens_per_gpu_s", 28_907, 0.1, ""),
        figure("requests", "requests_per_s", 1.821, 0.1, "/s"),
        figure("prompt tokens a request", "mean_input", 126_019, 0.1, ""),
        Figure("hit rate", "93.9 %", run["hit"], points(93.9, 2), "%"),
        figure("ITL, mean", "itl_mean", 21.01, 0.1, "ms"),
        figure("ITL, P90", "itl_p90", 23.26, 0.1, "ms"),
        figure("TTFT, P50", "ttft_p50", 1.982, 0.25, "s"),
        figure("TTFT, P90", "ttft_p90", 7.703, 0.25, "s", TAIL_REASON),
        figure("TTFT, mean", "ttft_mean", 4.718, 0.25, "s", TAIL_REASON),
        figure("latency, P50", "latency_p50", 13.26, 0.25, "s"),
        figure("latency, mean", "latency_mean", 25.48, 0.25, "s"),
        figure("decode step, P50, by the log", "log_step_decode_p50", 31.15, 0.1, "ms"),
        figure("decode step, P90, by the log", "log_step_decode_p90", 37.76, 0.1, "ms", SPREAD_REASON),
        figure("step of a rank with both, P50, by the log", "log_step_mixed_p50", 159.98, 0.1, "ms"),
        figure("step of a rank with both, P90, by the log", "log_step_mixed_p90", 236.2, 0.1, "ms"),
        part("steps of a rank that only decodes", "share_decode", 89.4),
        part("steps with both", "share_mixed", 7.9),
        part("steps with prompts alone", "share_prefill", 2.8),
    )


TAIL_REASON = "long additions to a prompt are more frequent in the set made up than they were"
SPREAD_REASON = "steps of one shape take one time here, and on the machine they do not"
HIGH = 256
"""Lanes for the chunk limit: "at high concurrency"."""


def t3_run(threshold: int, share: float, progress: Progress) -> Seen:
    setup = replace(
        T6,
        long_prefill_token_threshold=threshold,
        max_num_seqs=2 * HIGH // 8,
        num_gpu_blocks_override=None,
        balancer="hash",
    )
    rules = replace(RULES, replay=replace(RULES.replay, concurrency=HIGH), duration_s=450)
    return run(hardware("B300"), setup, for_share(rules, share), load(), progress)


def t3_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    off, on = seen["off"], seen["512"]

    def ratio(name: str) -> float:
        return on[name] / off[name]

    return (
        Figure(
            "tokens per GPU and second, 512 over off", "up to 1.93 x", ratio("tokens_per_gpu_s"), at_least(1.5), "x"
        ),
        Figure("P90 interactivity, 512 over off", "about 2.3 x", ratio("p90_interactivity"), at_least(1.5), "x"),
        Figure("TTFT of the longest waits (P99), 512 over off", "worse", ratio("ttft_p99"), at_least(1.0), "x"),
    )


def sticky_run(balancer: BalancerName, share: float, progress: Progress) -> Seen:
    rules = replace(RULES, duration_s=450)
    return run(hardware("B200"), replace(T6, balancer=balancer), for_share(rules, share), load(), progress)


def sticky_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    sticky, balanced = seen["sticky"], seen["least-loaded"]
    return (
        Figure(
            "sticky over least loaded, tokens per GPU and second",
            "better",
            sticky["tokens_per_gpu_s"] / balanced["tokens_per_gpu_s"],
            at_least(1.0),
            "x",
        ),
        Figure(
            "sticky over least loaded, P90 TTFT", "better", sticky["ttft_p90"] / balanced["ttft_p90"], at_most(1.0), "x"
        ),
    )


def dcp_run(name: str, share: float, progress: Progress) -> Seen:
    dep = replace(T6, balancer="sticky", num_gpu_blocks_override=None)
    # One engine in place of eight: as much to do for each device in a step, and most of the exchanges hidden.
    dcp = replace(
        dep,
        layout=Layout(tp=8, dcp=8, dcp_comm="a2a", overlap=0.75),
        max_num_seqs=128,
        max_num_batched_tokens=32_768,
        long_prefill_token_threshold=2_048,
    )
    setup = dep if name == "DEP8" else dcp
    rules = replace(RULES, duration_s=450)
    return run(hardware("B200"), setup, for_share(rules, share), load(), progress)


def dcp_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    dep, dcp = seen["DEP8"], seen["DCP8"]
    return (
        Figure(
            "DCP8 over DEP8, tokens per GPU and second",
            "about 1, not more",
            dcp["tokens_per_gpu_s"] / dep["tokens_per_gpu_s"],
            between(0.8, 1.1),
            "x",
        ),
        Figure(
            "DCP8 over DEP8, P90 interactivity",
            "about 1, not more",
            dcp["p90_interactivity"] / dep["p90_interactivity"],
            between(0.7, 1.1),
            "x",
        ),
    )


_V4 = "DeepSeek-V4-Pro, DP8 EP8, 3 drafts (2.49 tokens a step), interval 8, 8,192 tokens a step"
ROWS = (
    Row(
        "T6",
        f"{_V4}; 8 B200, chunks of 512, 16 sequences a rank, 64 lanes (AgentX 440246; log of its repetition)",
        {"run": t6_run},
        t6_judge,
        fitted=True,
    ),
    Row(
        "T3",
        f"{_V4}; 8 B300, {HIGH} lanes, chunks of 512 or without limit",
        {"off": partial(t3_run, 0), "512": partial(t3_run, 512)},
        t3_judge,
    ),
    Row(
        "T15 routing",
        "as T6",
        {"sticky": partial(sticky_run, "sticky"), "least-loaded": partial(sticky_run, "least-loaded")},
        sticky_judge,
    ),
    Row(
        "T15 DCP",
        "as T6; DP8 EP8 beside TP8 DCP8",
        {"DEP8": partial(dcp_run, "DEP8"), "DCP8": partial(dcp_run, "DCP8")},
        dcp_judge,
    ),
)
