"""Session trees made by hand or by Hypothesis, and a driver on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
import heapq

from hypothesis import strategies as st
import numpy as np

from samovar.workload.replay import Launch, Replay
from samovar.workload.session import SessionTree, Stream, Turn

BLOCK = 64


def turn(start: float, end: float, ids: list[int] | None = None, tokens: int | None = None, out: int = 5) -> Turn:
    blocks = np.array(ids if ids is not None else [1], dtype=np.int64)
    return Turn(start, end, len(blocks) * BLOCK if tokens is None else tokens, out, blocks)


def tree(*streams: Stream, name: str = "t", namespace: str = "") -> SessionTree:
    return SessionTree(name, BLOCK, streams, namespace or name)


def main_stream(*turns: Turn, system_tokens: int = 0) -> Stream:
    return Stream("main", "main", turns, system_tokens=system_tokens)


def subagent(name: str, spawn: int | None, join: int | None, *turns: Turn, parent: str = "main") -> Stream:
    return Stream(name, "subagent", turns, parent=parent, spawn_turn=spawn, join_turn=join)


def drive(
    replay: Replay, latency: Callable[[Launch], float], until: float = float("inf"), launches: int = 100_000
) -> list[tuple[float, float, Launch]]:
    """Start, end and launch of every call, in order of starting; the machine's invariants are checked on the way."""
    now = 0.0
    running: list[tuple[float, int]] = []
    made: list[tuple[float, float, Launch]] = []
    while not replay.finished and now < until and len(made) < launches:
        for launch in replay.due(now):
            made.append((now, now + latency(launch), launch))
            heapq.heappush(running, (made[-1][1], launch.id))
        replay.check()
        due = replay.next_due
        if running and (due is None or running[0][0] <= due):
            now, launch_id = heapq.heappop(running)
            replay.completed(launch_id, now)
            replay.check()
        else:
            assert due is not None, "nothing runs and nothing is due: the replay is stuck"
            assert due > now, "something is due that was not given"
            now = due
    return made


@st.composite
def recorded_trees(draw: st.DrawFn, name: str = "t") -> SessionTree:
    """Times on a grid of half seconds; sub-agents spawn and join where the recording allows it."""
    grid = st.integers(0, 20).map(lambda n: n / 2)

    def turns(start: float, least: int = 1) -> tuple[Turn, ...]:
        found = []
        for _ in range(draw(st.integers(least, 4))):
            start += draw(grid)
            end = start + draw(grid)
            found.append(turn(start, end, out=draw(st.integers(0, 9))))
            start = end
        return tuple(found)

    streams = [main_stream(*turns(draw(grid)))]
    for number in range(draw(st.integers(0, 3))):
        parent = draw(st.sampled_from(streams))
        spawn = draw(st.integers(0, len(parent.turns) - 1))
        mine = turns(parent.turns[spawn].start_s if draw(st.booleans()) else parent.turns[spawn].end_s)
        end = max(t.end_s for t in mine)
        joins = [at for at, t in enumerate(parent.turns) if at > spawn and t.start_s >= end]
        join = joins[0] if joins and draw(st.booleans()) else None
        streams.append(Stream(f"a{number}", "subagent", mine, parent=parent.id, spawn_turn=spawn, join_turn=join))
    return tree(*streams, name=name)
