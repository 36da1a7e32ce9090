"""A session tree as the replay runs it: model calls, and what each has to wait for.

A call fires `delay_s` after its anchor: the call before it in its stream (at its end), or, for the first of a sub-
agent, the parent's call that spawned it (at its end, or at its start when the recording has the two side by side). On
top it waits for barriers: of every other stream of the tree, the last call that had ended before this one began, and,
where it collects a sub-agent's result, the sub-agent's last call. So a slower server stretches the session, and
changes no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from samovar.workload.session import Role, SessionTree, Stream, Turn


@dataclass(frozen=True, slots=True)
class Call:
    """One model call of a script. Times are recorded seconds since the script's first call."""

    index: int
    """Place in the script; anchors and barriers have a smaller one."""
    stream: int
    turn: int
    role: Role
    recorded: Turn
    start_s: float
    end_s: float
    anchor: int | None
    """None: it starts with the script, at its recorded time."""
    anchored_at: Literal["end", "start"]
    delay_s: float
    barriers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Script:
    tree: SessionTree
    calls: tuple[Call, ...]
    """In recorded order; never empty."""

    @property
    def duration_s(self) -> float:
        return max(call.end_s for call in self.calls)


def script_of(tree: SessionTree) -> Script:
    """Where recorded whole seconds let a stream run backwards, its next call counts as starting with the one before."""
    places: list[tuple[float, int, int]] = []
    for s, stream in enumerate(tree.streams):
        latest = 0.0
        for k, turn in enumerate(stream.turns):
            latest = max(latest, turn.start_s)
            places.append((latest, s, k))
    places.sort()
    began = places[0][0]
    index_of = {(s, k): index for index, (_, s, k) in enumerate(places)}
    stream_of = {stream.id: s for s, stream in enumerate(tree.streams)}
    joins = _joins(tree, stream_of, index_of)
    running: list[tuple[float, int]] = []
    ended: dict[int, int] = {}
    calls: list[Call] = []
    for index, (start_s, s, k) in enumerate(places):
        start_s -= began
        while running and running[0][0] <= start_s:
            done = calls[heappop(running)[1]]
            ended[done.stream] = done.index
        stream = tree.streams[s]
        turn = stream.turns[k]
        anchor = index_of[s, k - 1] if k else _spawner(stream, stream_of, index_of)
        at, delay_s = _delay(calls, anchor if anchor is not None and anchor < index else None, start_s, first=k == 0)
        if anchor is not None and anchor >= index:
            anchor = None
        barriers = {last for other, last in ended.items() if other != s} | {
            j for j in joins.get(index, ()) if j < index
        }
        barriers -= {anchor} if anchor is not None and at == "end" else set()
        end_s = max(start_s, turn.end_s - began)
        calls.append(Call(index, s, k, stream.role, turn, start_s, end_s, anchor, at, delay_s, tuple(sorted(barriers))))
        heappush(running, (end_s, index))
    return Script(tree, tuple(calls))


def _spawner(stream: Stream, stream_of: dict[str, int], index_of: dict[tuple[int, int], int]) -> int | None:
    if stream.parent is None or stream.spawn_turn is None:
        return None
    return index_of[stream_of[stream.parent], stream.spawn_turn]


def _joins(tree: SessionTree, stream_of: dict[str, int], index_of: dict[tuple[int, int], int]) -> dict[int, list[int]]:
    """Index of a call to those of the sub-agents' last calls that it waits for."""
    joins: dict[int, list[int]] = {}
    for s, stream in enumerate(tree.streams):
        if stream.parent is not None and stream.join_turn is not None:
            joiner = index_of[stream_of[stream.parent], stream.join_turn]
            joins.setdefault(joiner, []).append(index_of[s, len(stream.turns) - 1])
    return joins


def _delay(
    calls: list[Call], anchor: int | None, start_s: float, *, first: bool
) -> tuple[Literal["end", "start"], float]:
    if anchor is None:
        return "end", start_s
    delay_s = start_s - calls[anchor].end_s
    if delay_s >= 0 or not first:
        return "end", max(0.0, delay_s)
    return "start", start_s - calls[anchor].start_s
