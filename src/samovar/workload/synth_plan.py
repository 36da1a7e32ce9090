"""The lengths of a made-up load: who calls how often, with how much context, and how long clients take in between.

Shapes are drawn first; then whole distributions are stretched (linearly in the logarithm, which keeps their order)
until median and P90 of the set are those asked for. So a set meets its figures at any size, not only on average.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from samovar.workload.synth_config import SynthConfig

Floats = NDArray[np.float64]
Z90 = 1.2815515655446004
ROUNDS = 25
"""Stretching again and again: what is added to a stretched value (a fixed prefix, a minimum) shifts the result."""
LEAST_NEW_TOKENS = 16
AGENT_PREFIX_SHARE = 0.55
"""A sub-agent's tool definitions and system prompt, as a share of the main agent's."""
AGENT_KINDS = ("Explore", "Explore", "Explore", "Explore", "general-purpose", "Plan")
LEAST_TURNS = 3
RAW_GROWTH = (450.0, 2_200.0)
"""Mean tokens that a turn adds, before stretching: long sessions grow slowly, short ones do not leap."""

RESUMED_SHARE = 0.15
"""Sessions that begin with the long context of an earlier one."""


@dataclass(slots=True)
class StreamPlan:
    prefix_tokens: int
    body: Floats
    """Raw tokens of each prompt behind the prefix, [turns]."""
    kept: Floats
    """How many of those the prompt shares with the one before; -1: all that one had."""
    spawn_turn: int | None = None
    kind: str = ""
    outputs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gaps_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Before each turn; the first one's is not used."""
    inputs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    shared: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Tokens that each prompt shares with the one before."""

    @property
    def num_turns(self) -> int:
        return len(self.body)


@dataclass(slots=True)
class SessionPlan:
    streams: list[StreamPlan]
    """The main agent's first."""


def plan_sessions(config: SynthConfig, rng: np.random.Generator) -> list[SessionPlan]:
    turns = _turns(config, rng)
    agents = _agents(config, rng, turns)
    plans = [_session(config, rng, int(t), int(a)) for t, a in zip(turns, agents, strict=True)]
    streams = [stream for plan in plans for stream in plan.streams]
    _draw_outputs(config, rng, streams)
    _fit_inputs(config, streams)
    return plans


def log_stretch(values: Floats, median: float, p90: float) -> tuple[float, float]:
    """(a, b) such that exp(a + b * log(values)) has that median and P90. Values must be positive."""
    middle, high = np.percentile(values, (50, 90))
    b = log(p90 / median) / log(high / middle) if high > middle and p90 > median else 1.0
    return log(median) - b * log(middle), b


def stretched(values: Floats, median: float, p90: float) -> Floats:
    a, b = log_stretch(values, median, p90)
    result: Floats = np.exp(a + b * np.log(values))
    return result


def _turns(config: SynthConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    sigma = log(config.turns_p90 / config.turns_median) / Z90
    draws = np.exp(np.clip(_even_normals(config.sessions, rng), -2.6, 2.6) * max(sigma, 1e-3))
    counts = np.rint(stretched(draws, config.turns_median, config.turns_p90))
    return np.maximum(counts, min(LEAST_TURNS, config.turns_median)).astype(np.int64)


def _even_normals(size: int, rng: np.random.Generator) -> Floats:
    """Normal deviates that cover the distribution evenly: few sessions make a fair sample."""
    levels = (rng.permutation(size) + rng.uniform(0.25, 0.75, size)) / size
    # The normal quantile by inversion of a fine table: numpy has none.
    grid = np.linspace(-4, 4, 4001)
    density = np.exp(-(grid**2) / 2)
    cumulated = np.cumsum(density) / density.sum()
    result: Floats = np.interp(levels, cumulated, grid)
    return result


def _agents(config: SynthConfig, rng: np.random.Generator, turns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sub-agents of each session: the share asked for has some, longer sessions have more."""
    wanted = round(config.subagent_share * len(turns))
    counts = np.zeros(len(turns), dtype=np.int64)
    room = np.maximum(0, (turns - 2) // 2)
    # Those that have room for the usual number come first, in random order; then the longest of the others.
    order = np.lexsort((rng.random(len(turns)), -np.minimum(room, np.ceil(config.subagents_median))))
    chosen = order[:wanted]
    if not wanted:
        return counts
    draws = np.exp(0.85 * np.clip(_even_normals(wanted, rng), -2, 2)) * config.subagents_median
    numbers = np.maximum(1, np.rint(np.sort(draws))).astype(np.int64)
    by_room = chosen[np.argsort(np.log(room[chosen] + 1) + 0.5 * rng.standard_normal(wanted))]
    counts[by_room] = np.clip(numbers, 1, np.maximum(1, room[by_room]))
    return np.where(room > 0, counts, 0)


def _session(config: SynthConfig, rng: np.random.Generator, turns: int, agents: int) -> SessionPlan:
    inner = _inner_turns(rng, turns, agents)
    main_turns = turns - sum(inner)
    peak = 150_000 * exp(0.45 * rng.standard_normal())
    resumed = rng.random() < RESUMED_SHARE
    body, kept = _contexts(config, rng, main_turns, 70_000 if resumed else 14_000, peak)
    main = StreamPlan(config.prefix_tokens, body, kept)
    streams = [main]
    at = -1
    remaining = inner[:]
    while remaining:
        burst = min(len(remaining), int(rng.integers(1, 5)))
        # Bursts that must still come need a turn each.
        at = int(rng.integers(at + 1, max(at + 2, main_turns - len(remaining))))
        at = min(at, main_turns - 1)
        for turns_of_agent in remaining[:burst]:
            body, kept = _contexts(config, rng, turns_of_agent, 3_000, 50_000 * exp(0.4 * rng.standard_normal()))
            kind = AGENT_KINDS[int(rng.integers(len(AGENT_KINDS)))]
            prefix = round(AGENT_PREFIX_SHARE * config.prefix_tokens)
            streams.append(StreamPlan(prefix, body, kept, spawn_turn=at, kind=kind))
        remaining = remaining[burst:]
    return SessionPlan(streams)


def _inner_turns(rng: np.random.Generator, turns: int, agents: int) -> list[int]:
    """Calls of each sub-agent; the main agent keeps at least one call per burst and two more."""
    if not agents:
        return []
    budget = min(turns - 2 - agents // 2, round(turns * rng.uniform(0.3, 0.7)), 25 * agents)
    weights = rng.lognormal(0.0, 0.5, agents)
    counts = np.maximum(1, np.floor(weights / weights.sum() * max(budget, agents))).astype(np.int64)
    while counts.sum() > turns - 1 and counts.max() > 1:
        counts[int(counts.argmax())] -= 1
    found: list[int] = counts.tolist()
    return found[: max(0, turns - 1)]


def _contexts(
    config: SynthConfig, rng: np.random.Generator, turns: int, start: float, peak: float
) -> tuple[Floats, Floats]:
    start *= exp(0.5 * rng.standard_normal())
    mean = min(max(peak / max(turns, 1), RAW_GROWTH[0]), RAW_GROWTH[1])
    growth = rng.lognormal(log(mean) - 0.72, 1.2, turns)
    cut, kind = rng.random(turns), rng.random(turns)
    body, kept = np.zeros(turns), np.full(turns, -1.0)
    size = start
    for turn in range(turns):
        if turn == 0:
            body[turn], kept[turn] = size, 0.0
            continue
        before = size
        if size + growth[turn] > 2.5 * peak or (cut[turn] < config.cut_share and kind[turn] < 0.5):
            size = 12_000 * exp(0.4 * (2 * kind[turn] - 1))
            kept[turn] = min(before, size) * 0.02
        elif cut[turn] < config.cut_share:
            kept[turn] = before * (0.5 + 0.96 * (kind[turn] - 0.5))
            size = before * 1.01
        else:
            size = before + growth[turn]
        body[turn] = size
    return body, kept


def _draw_outputs(config: SynthConfig, rng: np.random.Generator, streams: list[StreamPlan]) -> None:
    sigma = log(config.output_p90 / config.output_median) / Z90
    total = sum(stream.num_turns for stream in streams)
    draws = stretched(rng.lognormal(0.0, max(sigma, 1e-3), total), config.output_median, config.output_p90)
    outputs = np.maximum(1, np.rint(draws)).astype(np.int64)
    cuts = np.cumsum([stream.num_turns for stream in streams])[:-1]
    for stream, part in zip(streams, np.split(outputs, cuts), strict=True):
        stream.outputs = part


def _fit_inputs(config: SynthConfig, streams: list[StreamPlan]) -> None:
    a, b = 0.0, 1.0
    for _ in range(ROUNDS):
        for stream in streams:
            _set_inputs(stream, a, b)
        inputs = np.concatenate([stream.inputs for stream in streams]).astype(np.float64)
        more_a, more_b = log_stretch(inputs, config.input_median, config.input_p90)
        if abs(more_a) < 1e-6 and abs(more_b - 1) < 1e-6:
            return
        a, b = more_a + more_b * a, more_b * b


def _set_inputs(stream: StreamPlan, a: float, b: float) -> None:
    bodies = np.exp(a + b * np.log(stream.body)).tolist()
    kept = np.exp(a + b * np.log(np.maximum(stream.kept, 1.0))).tolist()
    inputs: list[int] = []
    shared: list[int] = []
    for turn, raw in enumerate(stream.kept.tolist()):
        wanted = stream.prefix_tokens + round(bodies[turn])
        if turn == 0:
            inputs.append(wanted + LEAST_NEW_TOKENS)
            shared.append(0)
        elif raw < 0:
            before = inputs[-1]
            shared.append(before)
            inputs.append(max(wanted, before + int(stream.outputs[turn - 1]) + LEAST_NEW_TOKENS))
        else:
            keeps = min(inputs[-1] - 1, stream.prefix_tokens + round(kept[turn]))
            shared.append(keeps)
            inputs.append(max(wanted, keeps + LEAST_NEW_TOKENS))
    stream.inputs = np.array(inputs, dtype=np.int64)
    stream.shared = np.array(shared, dtype=np.int64)
