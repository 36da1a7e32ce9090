"""What more KV on the device brings: decode context parallelism for Kimi-K2.6, and for DeepSeek-V4-Pro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from benchmarks.sim_published_agentx import LOAD as AGENTX
from benchmarks.sim_published_form import Figure, Progress, Row, Seen, between, points, within
from benchmarks.sim_published_loads import agents, two_sizes
from benchmarks.sim_published_seen import for_share, run

from samovar.kv.settings import tiers_of
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_setup import Hardware, Rules, Setup
from samovar.sim.settings import SimSettings
from samovar.sim.tiers import TierSettings as SimTiers
from samovar.spec.catalog import load_device, load_model
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script

MAX_MODEL_LEN = 262_144
LONG_SHARE, LONG_TOKENS = 0.53, (66_500, 72_500)
"""Published: 67k tokens in the median, 53 % of 64k and more, and 34k to 42k of KV a request. That is not one hump: the
other 47 % are short."""
T4_DEVICE_TOKENS = 1_200_000
"""Of a rank. Where prompts are computed apart from answers, one machine sees all prompts, and its devices hold few."""
T4_HOST, T4_SHARED = "592GiB", "430GiB"
"""Of all ranks together: not quite enough for what each has to keep; and less, which is enough when it is shared."""
LANES = {"TP8": 64, "DCP8": 512}


@cache
def t4_load() -> tuple[Script, ...]:
    return agents(AGENTX, MAX_MODEL_LEN)


@cache
def load() -> tuple[Script, ...]:
    return two_sizes(2 * max(LANES.values()), 60, LONG_SHARE, LONG_TOKENS, seed=2)


def t2_run(name: str, share: float, progress: Progress) -> Seen:
    layout = Layout(tp=8) if name == "TP8" else Layout(tp=8, dcp=8, dcp_comm="a2a")
    setup = Setup(layout=layout, max_model_len=MAX_MODEL_LEN, max_num_seqs=1024, max_num_batched_tokens=8192)
    rules = Rules(replay=ReplayConfig(concurrency=LANES[name]), duration_s=600)
    hardware = Hardware(load_model("kimi-k2.6"), load_device("B200"), 8)
    return run(hardware, setup, for_share(rules, share), load(), progress)


T4 = Setup(
    layout=Layout(dp=8, ep=True),
    max_model_len=MAX_MODEL_LEN,
    max_num_seqs=32,
    max_num_batched_tokens=8192,
    num_gpu_blocks_override=T4_DEVICE_TOKENS // 64,
    retention_policy="lru",
    tiers=tiers_of(offloading_size=T4_HOST),
    balancer="hash",
)


def t4_run(shared: bool, share: float, progress: Progress) -> Seen:
    """Pools of their own bind a session to its rank; with a shared one it goes where there is room."""
    rules = Rules(replay=ReplayConfig(concurrency=128), duration_s=240)
    hardware = Hardware(load_model("kimi-k2.6"), load_device("MI355X"), 8)
    setup = replace(T4, balancer="least-loaded") if shared else T4

    def change(settings: SimSettings) -> SimSettings:
        wanted = tiers_of(offloading_size=T4_SHARED)
        assert isinstance(settings.tiers, SimTiers) and wanted is not None
        return replace(settings, tiers=replace(settings.tiers, wanted=wanted, shared=True)) if shared else settings

    return run(hardware, setup, for_share(rules, share), t4_load(), progress, change)


def t2_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    tp, dcp = seen["TP8"], seen["DCP8"]
    return (
        Figure("TP8, KV in use at 64 lanes", "100 %", tp["kv_used_p50"], within(100, 0.15), "%"),
        Figure("DCP8, KV in use at 512 lanes", "82 %", dcp["kv_used_p50"], within(82, 0.15), "%", reason=KV_REASON),
        Figure(
            "DCP8 over TP8, tokens per GPU and second",
            "3.3 x",
            dcp["tokens_per_gpu_s"] / tp["tokens_per_gpu_s"],
            within(6091 / 1863, 0.15),
            "x",
            reason=T2_REASON,
        ),
    )


KV_REASON = "with 34k to 42k tokens a request, 512 lanes take 83 to 100 %, and all of them run here"
T2_REASON = (
    "at its wall vLLM preempts and computes again, where this engine admits only what fits; and a step with prompts is "
    "dear under tensor parallelism here, with a floor fitted on a DP group"
)


T4_REASON = "a hundredth of the requests of a short run is one or two, and how long those wait changes with everything"


def t4_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    private, shared = seen["private"], seen["shared"]
    return (
        Figure(
            "hit rate, one shared pool instead of one a rank: change",
            "-1 point",
            shared["hit"] - private["hit"],
            points(0, 2),
            "points",
        ),
        Figure(
            "tokens per GPU and second, a shared pool over own ones",
            "1.077 x",
            shared["tokens_per_gpu_s"] / private["tokens_per_gpu_s"],
            within(1.077, 0.1),
            "x",
        ),
        Figure(
            "P99 TTFT, own pools over a shared one",
            "3.2 x",
            private["ttft_p99"] / shared["ttft_p99"],
            between(2, 4),
            "x",
            reason=T4_REASON,
        ),
    )


ROWS = (
    Row(
        "T2",
        "Kimi-K2.6 NVFP4, 8 B200, TP8 with 64 lanes, TP8 DCP8 with 512; 53 % of the prompts from 64k on, nine tenths "
        "cached, no pauses",
        {"TP8": partial(t2_run, "TP8"), "DCP8": partial(t2_run, "DCP8")},
        t2_judge,
    ),
    Row(
        "T4",
        "Kimi-K2.6, 8 MI355X, 128 lanes; colocated: prompts and answers on the same devices, not 1P2D",
        {"private": partial(t4_run, False), "shared": partial(t4_run, True)},
        t4_judge,
    ),
)
