"""A recorded agent session: a tree of streams, each a sequence of model calls.

Every trace format is read into this and everything else (statistics, replay, simulator, pictures) works on it.
Times are seconds from the session's start, as recorded. Immutable; the block arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

BlockIds = NDArray[np.int64]
"""Ids of a prompt's blocks, in order, [num_blocks] int64. They are *prefix-chained*: equal ids mean that everything up
to and including that block is equal, so one id names a whole prefix."""

Role = Literal["main", "subagent", "aux"]
"""`main`: the agent the user talks to. `subagent`: an agent it started. `aux`: a side call of one request (a title, a
summary), which nothing continues."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One model call. Equal only to itself: its blocks are an array."""

    start_s: float
    """When the client sent it."""
    end_s: float
    """When its answer was complete; `start_s` where the trace does not tell."""
    input_tokens: int
    output_tokens: int
    blocks: BlockIds
    """input_tokens // block_tokens ids, or one more when the trace also names the partial last block."""
    model: str = ""
    stop: str = ""
    """Why the answer ended, in the trace's words: "tool_use", "end_turn", "" when unknown."""
    input_types: tuple[str, ...] = ()
    """What was new in the prompt: "tool_result", "text"."""
    output_types: tuple[str, ...] = ()
    """What the answer held: "text", "thinking", "tool_use"."""
    streaming: bool = True
    api_time_s: float | None = None
    """Recorded duration of the call; None when missing."""
    think_time_s: float | None = None
    """Client's time before this call, as the trace states it; `Stream.gap_s` is derived from the times instead."""
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """One agent's own sequence of turns, ordered by start.

    `parent`, `spawn_turn` and `join_turn` place a sub-agent in the tree. It starts once the parent's turn `spawn_turn`
    has ended (None: together with the session), and the parent's turn `join_turn` waits for it (None: nobody does; it
    runs in the background). For the main stream all three are None.
    """

    id: str
    """"main", the trace's agent id, or a made-up one for an agent the trace does not mark; unique in the session."""
    role: Role
    turns: tuple[Turn, ...]
    parent: str | None = None
    spawn_turn: int | None = None
    join_turn: int | None = None
    kind: str = ""
    """The trace's name for the type of sub-agent ("Explore"); "" when it has none."""
    marked: bool = False
    """The trace says that this is a sub-agent. False: the main agent, or found among its calls (see `chains`)."""
    tool_tokens: int = 0
    system_tokens: int = 0
    """Tool definitions and system prompt at the start of its prompts; 0 when the trace does not tell."""

    @property
    def start_s(self) -> float:
        return self.turns[0].start_s

    @property
    def end_s(self) -> float:
        return max(turn.end_s for turn in self.turns)

    def gap_s(self, index: int) -> float:
        """Client's time between the end of the turn before and this one; 0 for the first, never negative."""
        return 0.0 if index == 0 else max(0.0, self.turns[index].start_s - self.turns[index - 1].end_s)


@dataclass(frozen=True, slots=True)
class SessionTree:
    """`streams[0]` is the main one. No stream is empty; parents come before their children."""

    id: str
    block_tokens: int
    streams: tuple[Stream, ...]
    namespace: str
    """Block ids of sessions with the same namespace mean the same blocks; otherwise equal ids mean nothing."""
    source: str = ""
    """File it came from, for messages."""
    start_s: float | None = None
    """When the session began relative to the others of its file; None when the format does not tell."""

    @property
    def main(self) -> Stream:
        return self.streams[0]

    @property
    def tool_tokens(self) -> int:
        return self.main.tool_tokens

    @property
    def system_tokens(self) -> int:
        return self.main.system_tokens

    @property
    def num_turns(self) -> int:
        """Model calls of all streams."""
        return sum(len(stream.turns) for stream in self.streams)

    @property
    def duration_s(self) -> float:
        return max(stream.end_s for stream in self.streams) - min(stream.start_s for stream in self.streams)

    def stream(self, stream_id: str) -> Stream:
        """Raises KeyError."""
        for stream in self.streams:
            if stream.id == stream_id:
                return stream
        raise KeyError(stream_id)

    def calls(self) -> Iterator[Call]:
        """Every turn of every stream by start time; at equal times in the order of the streams."""
        calls = [
            Call(position, index, stream, turn)
            for position, stream in enumerate(self.streams)
            for index, turn in enumerate(stream.turns)
        ]
        calls.sort(key=lambda call: (call.turn.start_s, call.stream_index, call.turn_index))
        return iter(calls)


@dataclass(frozen=True, slots=True)
class Call:
    """A turn with its place in the session: `session.streams[stream_index].turns[turn_index]`."""

    stream_index: int
    turn_index: int
    stream: Stream
    turn: Turn


def frozen_ids(ids: BlockIds) -> BlockIds:
    """The same array, made read-only."""
    ids.setflags(write=False)
    return ids


def common_prefix(a: BlockIds, b: BlockIds) -> int:
    """Blocks that two prompts share. Ids are chained, so a shared block means that all before it are shared."""
    size = min(len(a), len(b))
    if size == 0:
        return 0
    if a[size - 1] == b[size - 1]:
        return size
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        if a[middle] == b[middle]:
            low = middle + 1
        else:
            high = middle
    return low


_OUTCOMES = {"tool_use": "tool_calls", "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


def outcome_word(stop: str) -> str:
    """A trace's word for the end of an answer in the words of a server, which retention policies hear."""
    return _OUTCOMES.get(stop, stop)
