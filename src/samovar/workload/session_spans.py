"""A session as stretches of time: calls, what lies between them, and how much the server has to do meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from samovar.workload.quantities import time_text
from samovar.workload.session import SessionTree, Stream, Turn


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a lane. `kind`: "call", "tool", "join" (waits for sub-agents) or "user"."""

    kind: str
    start_s: float
    end_s: float
    text: str


def spans_of(stream: Stream, session: SessionTree) -> list[Span]:
    """Calls of a stream and what lies between them, in order."""
    joined = Counter(child.join_turn for child in session.streams if child.parent == stream.id)
    spans = [_call_span(stream.turns[0], 0)]
    for index, (before, turn) in enumerate(pairwise(stream.turns), 1):
        if turn.start_s > before.end_s:
            spans.append(_between(before, turn, joined[index]))
        spans.append(_call_span(turn, index))
    return spans


def _call_span(turn: Turn, index: int) -> Span:
    text = f"call {index}: {turn.input_tokens:,} tokens in, {turn.output_tokens:,} out, {turn.stop or 'end unknown'}"
    return Span("call", turn.start_s, turn.end_s, f"{text}<br>{turn.model}, {time_text(turn.end_s - turn.start_s)}")


def _between(before: Turn, turn: Turn, children: int) -> Span:
    length = time_text(turn.start_s - before.end_s)
    if children:
        return Span("join", before.end_s, turn.start_s, f"waits for {children} sub-agents, {length}")
    if "tool_result" in turn.input_types or (not turn.input_types and before.stop == "tool_use"):
        return Span("tool", before.end_s, turn.start_s, f"tool call, {length}")
    return Span("user", before.end_s, turn.start_s, f"nobody asks, {length}")


def in_flight(session: SessionTree) -> tuple[list[float], list[int]]:
    """Calls in flight as steps: from `times[i]` on there are `depths[i]`."""
    steps: Counter[float] = Counter()
    for call in session.calls():
        steps[call.turn.start_s] += 1
        steps[call.turn.end_s] -= 1
    times, depths, depth = [], [], 0
    for time_s in sorted(steps):
        depth += steps[time_s]
        times.append(time_s)
        depths.append(depth)
    return times, depths


def idle_spans(session: SessionTree) -> list[tuple[float, float]]:
    times, depths = in_flight(session)
    return [(a, b) for (a, b), depth in zip(pairwise(times), depths, strict=False) if depth == 0]
