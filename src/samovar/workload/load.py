"""Many sessions as one load: flat tables of all calls and of the pieces they reuse, small enough to keep.

Sessions come in groups that share a namespace; a group's block ids are forgotten once its tables are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from samovar.workload.reuse import Ints, find_reuse
from samovar.workload.session import Call, SessionTree, common_prefix

Floats = NDArray[np.float64]
CUT_TO_START_SHARE = 0.5


class Cause(IntEnum):
    """Why a call has tokens that no earlier call of its namespace computed."""

    FIRST = 0
    """The main agent's first prompt."""
    GROWTH = 1
    """The prompt of the turn before went on: an answer, tool results, a question."""
    CUT_TO_START = 2
    """Less than half of the turn before was kept: the context was compacted, or something near its start changed."""
    CUT_IN_CONTEXT = 3
    """The prompt was changed further behind."""
    SUBAGENT = 4
    """First prompt of a sub-agent or side call."""


@dataclass(frozen=True, slots=True)
class Load:
    """Calls are in the order sessions were given, inside a group by time; all arrays are [calls] or [pieces]."""

    group: Ints
    session: Ints
    start_s: Floats
    """From the beginning of the call's group."""
    end_s: Floats
    input_tokens: Ints
    hit_tokens: Ints
    """Tokens of the prompt that an infinite cache would hold."""
    block_tokens: Ints
    num_blocks: Ints
    hit_blocks: Ints
    cause: Ints
    """Values of `Cause`."""
    piece_call: Ints
    piece_source: Ints
    piece_start: Ints
    """In tokens, as `piece_stop`; both are multiples of the block size: room that the blocks take."""
    piece_stop: Ints
    group_length_s: Floats
    """[groups]"""
    unchained_blocks: int

    @property
    def num_calls(self) -> int:
        return len(self.start_s)

    def piece_tokens(self) -> Ints:
        """Tokens of the prompt in each piece: less than its room where the last block is partial."""
        limit = self.input_tokens[self.piece_call]
        tokens: Ints = np.minimum(self.piece_stop, limit) - np.minimum(self.piece_start, limit)
        return tokens


@dataclass(slots=True)
class _Tables:
    group: list[Ints] = field(default_factory=list)
    session: list[Ints] = field(default_factory=list)
    start_s: list[Floats] = field(default_factory=list)
    end_s: list[Floats] = field(default_factory=list)
    input_tokens: list[Ints] = field(default_factory=list)
    hit_tokens: list[Ints] = field(default_factory=list)
    block_tokens: list[Ints] = field(default_factory=list)
    num_blocks: list[Ints] = field(default_factory=list)
    hit_blocks: list[Ints] = field(default_factory=list)
    cause: list[Ints] = field(default_factory=list)
    piece_call: list[Ints] = field(default_factory=list)
    piece_source: list[Ints] = field(default_factory=list)
    piece_start: list[Ints] = field(default_factory=list)
    piece_stop: list[Ints] = field(default_factory=list)


class LoadBuilder:
    """Takes sessions group by group; `build` when all are in."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._lengths_s: list[float] = []
        self._calls = 0
        self._sessions = 0
        self._unchained = 0

    def add(self, sessions: list[SessionTree]) -> list[NDArray[np.int64]]:
        """Sessions of one namespace. Returns, for each, its calls' numbers in the load, in the order of `calls()`."""
        placed = [(session.start_s or 0.0, at, call) for at, session in enumerate(sessions) for call in session.calls()]
        order = sorted(range(len(placed)), key=lambda i: placed[i][0] + placed[i][2].turn.start_s)
        calls = [placed[i] for i in order]
        reuse = find_reuse([call.turn.blocks for _, _, call in calls])
        size = np.array([sessions[at].block_tokens for _, at, _ in calls], dtype=np.int64)
        length = np.array([call.turn.input_tokens for _, _, call in calls], dtype=np.int64)
        start = np.array([began + call.turn.start_s for began, _, call in calls])
        end = np.array([began + call.turn.end_s for began, _, call in calls])
        where = np.array([at for _, at, _ in calls], dtype=np.int64)
        began_s = float(start.min())
        tables = self._tables
        tables.group.append(np.full(len(calls), len(self._lengths_s), dtype=np.int64))
        tables.session.append(where + self._sessions)
        tables.start_s.append(start - began_s)
        tables.end_s.append(end - began_s)
        tables.input_tokens.append(length)
        tables.hit_tokens.append(np.minimum(reuse.hit_blocks * size, length))
        tables.block_tokens.append(size)
        tables.num_blocks.append(np.array([len(call.turn.blocks) for _, _, call in calls], dtype=np.int64))
        tables.hit_blocks.append(reuse.hit_blocks)
        tables.cause.append(np.array([_cause(sessions[at], call) for _, at, call in calls], dtype=np.int64))
        tables.piece_call.append(reuse.call + self._calls)
        tables.piece_source.append(reuse.source + self._calls)
        tables.piece_start.append(reuse.start * size[reuse.call])
        tables.piece_stop.append(reuse.stop * size[reuse.call])
        numbers = np.empty(len(calls), dtype=np.int64)
        numbers[order] = np.arange(len(calls)) + self._calls
        cuts = np.cumsum([session.num_turns for session in sessions])[:-1]
        self._lengths_s.append(float(end.max()) - began_s)
        self._calls += len(calls)
        self._sessions += len(sessions)
        self._unchained += reuse.unchained_blocks
        return np.split(numbers, cuts)

    def build(self) -> Load:
        """Needs at least one session."""
        names = _Tables.__slots__
        joined = {name: np.concatenate(getattr(self._tables, name)) for name in names}
        return Load(**joined, group_length_s=np.array(self._lengths_s), unchained_blocks=self._unchained)


def make_load(sessions: Iterable[SessionTree]) -> Load:
    builder = LoadBuilder()
    for group in grouped(sessions):
        builder.add(group)
    return builder.build()


def grouped(sessions: Iterable[SessionTree]) -> Iterable[list[SessionTree]]:
    """Neighbours that share a namespace, together."""
    return (list(group) for _, group in groupby(sessions, key=lambda session: session.namespace))


def _cause(session: SessionTree, call: Call) -> Cause:
    if call.turn_index == 0:
        return Cause.FIRST if call.stream_index == 0 else Cause.SUBAGENT
    before = call.stream.turns[call.turn_index - 1]
    full = min(len(before.blocks), before.input_tokens // session.block_tokens)
    kept = common_prefix(before.blocks, call.turn.blocks)
    if kept >= full:
        return Cause.GROWTH
    return Cause.CUT_TO_START if kept < CUT_TO_START_SHARE * full else Cause.CUT_IN_CONTEXT
