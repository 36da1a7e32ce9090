"""Mono decode of DeepSeek-V4-Pro: how much it brings, and up to where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from benchmarks.sim_published_agentx import hardware, load
from benchmarks.sim_published_form import Figure, Progress, Row, Seen, at_least, at_most, between
from benchmarks.sim_published_seen import for_share, run

from samovar.sim.cost.layout import Layout, Mode
from samovar.sim.plan_setup import Rules, Setup
from samovar.sim.settings import Acceptance
from samovar.workload.replay import ReplayConfig

LANES = (1, 2, 4, 8)
SETUP = Setup(
    layout=Layout(tp=8),
    max_model_len=1_048_576,
    max_num_seqs=64,
    max_num_batched_tokens=8192,
    acceptance=Acceptance(drafts=6, mean_tokens=3.77),
)
"""Seven rows to a sequence: 56 of the 64 that mono decode takes, when eight decode at once."""


def t14_run(lanes: int, mode: Mode, share: float, progress: Progress) -> Seen:
    setup = replace(SETUP, layout=replace(SETUP.layout, mode=mode))
    rules = Rules(replay=ReplayConfig(concurrency=lanes, time_scale=0.0), duration_s=600)
    return run(hardware("MI355X"), setup, for_share(rules, share), load(), progress)


def t14_judge(seen: Mapping[str, Seen]) -> tuple[Figure, ...]:
    """By the median request: the slowest tenth waits for prompts of others, which are not the same in both runs."""
    gains = [seen[f"{n}, graph"]["itl_p50"] / seen[f"{n}, mono"]["itl_p50"] for n in LANES]
    steps = [later / earlier for earlier, later in pairwise(gains)]
    shown = [
        Figure(
            f"tokens per second of a request (P50) with mono decode over without, {n} lanes",
            "",
            gain,
            at_least(1.0),
            "x",
        )
        for n, gain in zip(LANES, gains, strict=True)
    ]
    return (
        *shown,
        Figure("largest gain of a number of lanes over the one before", "shrinks", max(steps), at_most(1.0), "x"),
        Figure("what is left of the gain at 8 lanes", "small", (gains[-1] - 1) / (gains[0] - 1), between(0, 0.5), "x"),
    )


ROWS = (
    Row(
        "T14",
        "DeepSeek-V4-Pro, 8 MI355X, TP8, 6 drafts, mono decode (vLLM #61482; its numbers are public as a picture only)",
        {f"{n}, {mode}": partial(t14_run, n, mode) for n in LANES for mode in ("graph", "mono")},
        t14_judge,
    ),
)
