"""Made-up sessions with the statistics of real ones: the same seed gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from samovar.workload.chains import place
from samovar.workload.session import BlockIds, SessionTree, Stream, Turn, frozen_ids
from samovar.workload.synth_config import SynthConfig
from samovar.workload.synth_plan import (
    AGENT_PREFIX_SHARE,
    ROUNDS,
    Floats,
    SessionPlan,
    StreamPlan,
    log_stretch,
    plan_sessions,
)

MODEL, AGENT_MODEL = "large", "small"
FIRST_TOKEN_S = 0.8
DIGITS = 3
USER_SHARE = 0.15
"""Turns that begin with a message of the user: more often after a long gap."""


def synthesise(config: SynthConfig) -> Iterator[SessionTree]:
    """`config.sessions` sessions, one at a time: lengths are planned together, block ids are made as they are asked
    for. Times are rounded to milliseconds."""
    rng = np.random.default_rng(config.seed)
    plans = plan_sessions(config, rng)
    _fit_gaps(config, rng, plans)
    asks_user = [rng.random(plan.streams[0].num_turns) for plan in plans]
    for number, (plan, chance) in enumerate(zip(plans, asks_user, strict=True)):
        yield _session(config, number, plan, chance)


def _fit_gaps(config: SynthConfig, rng: np.random.Generator, plans: list[SessionPlan]) -> None:
    """Gaps such that those of all streams have the median and P90 asked for, waiting for sub-agents included."""
    streams = [stream for plan in plans for stream in plan.streams]
    draws = rng.lognormal(0.0, 1.0, sum(stream.num_turns for stream in streams))
    cuts = np.cumsum([stream.num_turns for stream in streams])[:-1]
    raw = np.split(draws, cuts)
    a, b = 0.0, 1.0
    for _ in range(ROUNDS):
        for stream, part in zip(streams, raw, strict=True):
            gaps_s: Floats = np.exp(a + b * np.log(part))
            stream.gaps_s = gaps_s.round(DIGITS)
        seen = [_seen_gaps(config, plan) for plan in plans]
        gaps: Floats = np.maximum(np.concatenate(seen), 1e-3) if seen else np.ones(1)
        if not gaps.size:
            return
        more_a, more_b = log_stretch(gaps, config.gap_median_s, config.gap_p90_s)
        if abs(more_a) < 1e-4 and abs(more_b - 1) < 1e-4:
            return
        a, b = more_a + more_b * a, more_b * b


def _seen_gaps(config: SynthConfig, plan: SessionPlan) -> Floats:
    starts, ends = _times(config, plan)
    return np.concatenate([np.zeros(0), *(s[1:] - e[:-1] for s, e in zip(starts, ends, strict=True))])


def _times(config: SynthConfig, plan: SessionPlan) -> tuple[list[Floats], list[Floats]]:
    """Start and end of each turn, by stream. Sub-agents start when the call that spawned them has ended; the main
    agent's next turn waits for them."""
    children: dict[int, list[int]] = {}
    for place_, stream in enumerate(plan.streams[1:], 1):
        assert stream.spawn_turn is not None
        children.setdefault(stream.spawn_turn, []).append(place_)
    starts = [np.zeros(stream.num_turns) for stream in plan.streams]
    ends = [np.zeros(stream.num_turns) for stream in plan.streams]
    main, main_api = plan.streams[0], _api_s(config, plan.streams[0])
    now_s = 0.0
    for turn in range(main.num_turns):
        if turn:
            now_s += float(main.gaps_s[turn])
        starts[0][turn] = round(now_s, DIGITS)
        now_s += main_api[turn]
        ends[0][turn] = round(now_s, DIGITS)
        latest_s = now_s
        for child in children.get(turn, ()):
            api, gaps = _api_s(config, plan.streams[child]), plan.streams[child].gaps_s
            gaps = np.concatenate([[0.1], gaps[1:]])
            begun = now_s + np.cumsum(gaps) + np.concatenate([[0.0], np.cumsum(api)[:-1]])
            starts[child] = np.round(begun, DIGITS)
            ends[child] = np.round(begun + api, DIGITS)
            latest_s = max(latest_s, float(ends[child][-1]))
        now_s = latest_s
    return starts, ends


def _api_s(config: SynthConfig, stream: StreamPlan) -> Floats:
    new = stream.inputs - stream.shared
    result: Floats = np.round(
        FIRST_TOKEN_S + new / config.prefill_tokens_per_s + stream.outputs / config.decode_tokens_per_s, DIGITS
    )
    return result


@dataclass(slots=True)
class _Numbers:
    """Block ids in order of appearance, from 1."""

    next: int = 1

    def take(self, count: int) -> BlockIds:
        ids = np.arange(self.next, self.next + count, dtype=np.int64)
        self.next += count
        return ids


def _session(config: SynthConfig, number: int, plan: SessionPlan, chance: Floats) -> SessionTree:
    starts, ends = _times(config, plan)
    numbers = _Numbers()
    main_plan = plan.streams[0]
    agent_prefix = numbers.take(plan.streams[1].prefix_tokens // config.block_tokens) if len(plan.streams) > 1 else None
    by_user = _by_user(starts[0], ends[0], chance)
    main = Stream(
        "main",
        "main",
        tuple(_turns(config, main_plan, starts[0], ends[0], by_user, numbers, None, MODEL)),
        tool_tokens=config.tool_tokens,
        system_tokens=config.system_tokens,
    )
    streams = [main]
    for at, agent in enumerate(plan.streams[1:], 1):
        asked = np.zeros(agent.num_turns, dtype=np.bool_)
        turns = _turns(config, agent, starts[at], ends[at], asked, numbers, agent_prefix, AGENT_MODEL)
        system = round(AGENT_PREFIX_SHARE * config.system_tokens)
        stream = Stream(
            f"agent_{at:03}",
            "subagent",
            tuple(turns),
            kind=agent.kind,
            marked=True,
            tool_tokens=agent.prefix_tokens - system,
            system_tokens=system,
        )
        streams.append(place(stream, main, stream.end_s, waited_for=True))
    name = f"synth-{config.seed}-{number:04}"
    return SessionTree(name, config.block_tokens, tuple(streams), namespace=name, source=name)


def _by_user(starts: Floats, ends: Floats, chance: Floats) -> np.ndarray:
    """Which turns begin with a message of the user."""
    asked = np.zeros(len(starts), dtype=np.bool_)
    asked[0] = True
    weights = np.sqrt(np.maximum(starts[1:] - ends[:-1], 0.01))
    if len(weights):
        asked[1:] = chance[1:] < np.minimum(0.9, USER_SHARE * weights / weights.mean())
    return asked


def _turns(
    config: SynthConfig,
    plan: StreamPlan,
    starts: Floats,
    ends: Floats,
    by_user: np.ndarray,
    numbers: _Numbers,
    prefix: BlockIds | None,
    model: str,
) -> Iterator[Turn]:
    """`prefix`: ids that the first prompt shares with its siblings."""
    before = prefix if prefix is not None else np.zeros(0, dtype=np.int64)
    shared = plan.shared.copy()
    shared[0] = len(before) * config.block_tokens
    api = _api_s(config, plan)
    for turn in range(plan.num_turns):
        length = int(plan.inputs[turn])
        kept = min(len(before), int(shared[turn]) // config.block_tokens, length // config.block_tokens)
        blocks = np.concatenate([before[:kept], numbers.take(length // config.block_tokens - kept)])
        before = frozen_ids(blocks)
        last = turn == plan.num_turns - 1
        ends_turn = last or bool(by_user[turn + 1])
        gap_s = float(starts[turn] - ends[turn - 1]) if turn else 0.0
        yield Turn(
            start_s=float(starts[turn]),
            end_s=float(starts[turn]) + float(api[turn]),
            input_tokens=length,
            output_tokens=int(plan.outputs[turn]),
            blocks=before,
            model=model,
            stop="end_turn" if ends_turn else "tool_use",
            input_types=("text",) if by_user[turn] or turn == 0 else ("tool_result",),
            output_types=("text",) if ends_turn else ("text", "tool_use"),
            api_time_s=float(api[turn]),
            think_time_s=round(max(0.0, gap_s), DIGITS),
            ttft_s=round(
                FIRST_TOKEN_S + float(plan.inputs[turn] - plan.shared[turn]) / config.prefill_tokens_per_s, DIGITS
            ),
        )
