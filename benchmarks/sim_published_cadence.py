"""When prefill may run: a DP group under an open load of short prompts, and eight prompts at once on one engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from benchmarks.sim_published_form import Band, Figure, Progress, Row, Seen, within
from benchmarks.sim_published_loads import at_once, poisson
from benchmarks.sim_published_seen import figures, run

from samovar.core.config import EngineConfig
from samovar.policy.lru import LRU
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.roofline import CostModel
from samovar.sim.cost.step_log import load_steps
from samovar.sim.cost.step_table import MeasuredModel
from samovar.sim.plan_setup import Hardware, Rules, Setup
from samovar.sim.run import simulate
from samovar.sim.settings import SimSettings
from samovar.spec.catalog import load_device, load_kernels, load_model
from samovar.workload.replay import ReplayConfig

PROMPT, OUTPUT, RATE = 1000, 200, 24.0
REQUESTS = 2048
"""At 24 a second and with about 6 s for the last ones, the throughput published (22.43 and 22.59) makes about 2,100."""
SERVERS = 8
"""vLLM's own balancer has an API server for every rank."""
OWN_FLOOR_S = 0.14
"""Of a step with prompts, if it were fitted on T1: shows what is left of T1's misses then. Used nowhere else."""
T1 = Setup(
    layout=Layout(dp=8, ep=True),
    max_model_len=16_384,
    max_num_seqs=1024,
    max_num_batched_tokens=8192,
    enable_prefix_caching=False,
    balancer="least-loaded",
)


def t1_run(interval: int, floor_s: float | None, share: float, progress: Progress) -> Seen:
    rules = Rules(
        replay=ReplayConfig(concurrency=1, start_from=0.0, start_to=0.0, max_visits=1), duration_s=1e5, grace_s=0.0
    )
    hardware = Hardware(load_model("deepseek-r1"), load_device("GB200"), 8)
    kernels = load_kernels(hardware.device.kernels)
    if floor_s is not None:
        kernels = replace(kernels, step=replace(kernels.step, prefill_floor_s=floor_s))
    steps = CostModel(hardware.model, hardware.device, T1.layout, kernels)
    scripts = poisson(max(64, round(share * REQUESTS)), RATE, PROMPT, OUTPUT, seed=1)

    def change(settings: SimSettings) -> SimSettings:
        return replace(settings, servers=SERVERS, steps=steps)

    return run(hardware, replace(T1, prefill_schedule_interval=interval), rules, scripts, progress, change)


FLOOR_REASON = (
    "this engine, three months older than T6's, took longer for every step with prompts (in brackets: with a floor of "
    "its own, 140 ms)"
)


def t1_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    one, two, own1, own2 = (seen[name] for name in ("interval 1", "interval 2", "own floor, 1", "own floor, 2"))

    def figure(number: int, name: str, what: str, published: float, share: float, unit: str) -> Figure:
        measured, own = (one, own1) if number == 1 else (two, own2)
        return Figure(
            f"interval {number}: {what}",
            f"{published:g} {unit}",
            measured[name],
            within(published, share),
            unit,
            reason=FLOOR_REASON,
            otherwise=f"{own[name]:.3g} {unit}",
        )

    own = one["gap_p50"] / two["gap_p50"], own1["gap_p50"] / own2["gap_p50"]
    return (
        figure(1, "requests_per_s", "requests", 22.43, 0.05, "/s"),
        figure(2, "requests_per_s", "requests", 22.59, 0.05, "/s"),
        figure(1, "gap_p50", "P50 gap between tokens", 274.9, 0.2, "ms"),
        figure(2, "gap_p50", "P50 gap between tokens", 32.1, 0.2, "ms"),
        Figure(
            "P50 gap, interval 1 over interval 2",
            "8.6 x",
            own[0],
            within(274.9 / 32.1, 0.2),
            "x",
            reason=FLOOR_REASON,
            otherwise=f"{own[1]:.2g} x",
        ),
        figure(1, "gap_mean", "mean gap between tokens", 236.7, 0.2, "ms"),
        figure(2, "gap_mean", "mean gap between tokens", 139.4, 0.2, "ms"),
        figure(1, "ttft_mean", "mean TTFT", 0.813, 0.25, "s"),
        figure(2, "ttft_mean", "mean TTFT", 0.502, 0.25, "s"),
    )


def t9_run(interval: int, guard: bool, share: float, progress: Progress) -> Seen:
    settings = SimSettings(
        steps=MeasuredModel(load_steps("glm-5.3-flash-4xgb10-dcp4"), 1),
        # A step takes one prompt, and a token of each of the others.
        engine=EngineConfig(
            num_blocks=4096,
            block_tokens=256,
            max_num_seqs=16,
            max_num_batched_tokens=6007,
            max_model_len=16_384,
            depth=1,
            prefill_schedule_interval=interval,
        ),
        replay=ReplayConfig(concurrency=8, start_from=0.0, start_to=0.0, max_visits=8),
        duration_s=1e5,
        policy=lambda config: LRU(),
        capacity_guard=guard,
    )
    made = simulate(settings, at_once(8, 6000, 300), progress)
    slowest_s = max(record.ttft_s or 0.0 for record in made.records)
    return figures(made, 4) | {"slowest_first_token_s": slowest_s}


def t9_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    found = []
    for interval, published, exact_s in ((8, 34.0, 33.05), (2, 24.2, 22.55), (1, 24.1, 20.8)):
        measured = seen[f"interval {interval}"]["slowest_first_token_s"]
        band = Band(exact_s - 1e-6, exact_s + 1e-6, f"{exact_s:g} s, exactly")
        name = f"interval {interval}: slowest first token"
        found.append(Figure(name, f"{published:g} s", measured, band, "s", digits=4))
    exact = Band(20.8 - 1e-6, 20.8 + 1e-6, "20.8 s, exactly")
    guarded = seen["interval 8, guarded"]["slowest_first_token_s"]
    return (*found, Figure("interval 8 with the capacity guard", "", guarded, exact, "s", digits=4))


ROWS = (
    Row(
        "T1",
        "DeepSeek-R1 NVFP4, 8 GB200, DP8 EP8, 8 API servers; 1,000 + 200 tokens, Poisson, 24/s (vLLM #44558)",
        {
            "interval 1": partial(t1_run, 1, None),
            "interval 2": partial(t1_run, 2, None),
            "own floor, 1": partial(t1_run, 1, OWN_FLOOR_S),
            "own floor, 2": partial(t1_run, 2, OWN_FLOOR_S),
        },
        t1_judge,
    ),
    Row(
        "T9",
        "GLM-5.3-Flash, 4 GB10, DCP4, eight prompts of 6k tokens at once, capacity guard off (vLLM #54627)",
        {
            "interval 8": partial(t9_run, 8, False),
            "interval 2": partial(t9_run, 2, False),
            "interval 1": partial(t9_run, 1, False),
            "interval 8, guarded": partial(t9_run, 8, True),
        },
        t9_judge,
    ),
)
