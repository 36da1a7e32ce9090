"""Recorded sessions as a cache sees them: requests with the keys of their blocks, ready to be replayed many times.

A request is stored as what it changes in its stream's last prompt, so a set of sessions takes room for its distinct
blocks, not for every prompt. Times are the session's own; `begin` places sessions on one clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
import random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import TraceError
from samovar.base.keys import KEY_BYTES
from samovar.workload.load import grouped
from samovar.workload.reuse import find_reuse
from samovar.workload.session import SessionTree, common_prefix, outcome_word

Nodes = NDArray[np.int64]
_UNSEEN, _ROOT = -2, -1


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One request."""

    session: int
    stream: str
    parent: str
    start_s: float
    end_s: float
    input_tokens: int
    block_tokens: int
    nodes: Nodes
    """Numbers of its full blocks: equal ones are equal prefixes, in all sessions."""
    kept: int
    """Leading blocks that it shares with the stream's request before it."""
    new_keys: tuple[bytes, ...]
    """Keys of the blocks behind them."""
    reason: str
    """How its answer ended, in the words of `TurnEnd`."""
    back_s: float | None
    """From its start to that of the stream's next request; None when it was the last one."""

    @property
    def hit_limit(self) -> int:
        """Blocks that a hit may cover: never the last token."""
        return max(0, min(len(self.nodes), (self.input_tokens - 1) // self.block_tokens))


@dataclass(frozen=True, slots=True)
class AskedSessions:
    requests: tuple[Asked, ...]
    num_sessions: int
    num_blocks: int
    """Distinct ones."""

    @property
    def longest_blocks(self) -> int:
        return max(len(asked.nodes) for asked in self.requests)

    @property
    def input_tokens(self) -> int:
        return sum(asked.input_tokens for asked in self.requests)


class Event(NamedTuple):
    """In the order that they sort: a request that ends when another one begins ends first."""

    time_s: float
    rank: int
    number: int
    """Of the request, in `AskedSessions.requests`."""
    begins: bool


class Piece(NamedTuple):
    """Blocks of a request that are next used together."""

    stop: int
    """They end before this block, and begin where the piece before it ended."""
    next_use: int | None
    """The place of that request in the order of their beginnings; None for never."""


def ask(sessions: Iterable[SessionTree]) -> AskedSessions:
    """Raises TraceError when there are none, or none with a block."""
    requests: list[Asked] = []
    num_sessions = num_blocks = 0
    for group in grouped(sessions):
        prompts = [
            call.turn.blocks[: call.turn.input_tokens // session.block_tokens]
            for session in group
            for call in session.calls()
        ]
        nodes, count = chained(prompts)
        keys = [(num_blocks + node).to_bytes(KEY_BYTES, "big") for node in range(count)]
        at = 0
        for session in group:
            requests += _requests(session, num_sessions, nodes[at : at + session.num_turns], keys, num_blocks)
            at += session.num_turns
            num_sessions += 1
        num_blocks += count
    if not num_blocks:
        raise TraceError("the traces hold no full block to cache")
    return AskedSessions(tuple(requests), num_sessions, num_blocks)


def _requests(session: SessionTree, number: int, nodes: list[Nodes], keys: list[bytes], offset: int) -> Iterable[Asked]:
    before: dict[int, Nodes] = {}
    nothing = np.zeros(0, dtype=np.int64)
    for call, own in zip(session.calls(), nodes, strict=True):
        stream, turn = call.stream, call.turn
        kept = common_prefix(before.get(call.stream_index, nothing), own)
        before[call.stream_index] = own
        following = stream.turns[call.turn_index + 1] if call.turn_index + 1 < len(stream.turns) else None
        yield Asked(
            session=number,
            stream=f"{number}/{stream.id}",
            parent=f"{number}/{stream.parent}" if stream.parent is not None else "",
            start_s=turn.start_s,
            end_s=max(turn.start_s, turn.end_s),
            input_tokens=turn.input_tokens,
            block_tokens=session.block_tokens,
            nodes=own + offset,
            kept=kept,
            new_keys=tuple(keys[node] for node in own[kept:].tolist()),
            reason=outcome_word(turn.stop),
            back_s=following.start_s - turn.start_s if following is not None else None,
        )


def chained(prompts: list[Nodes]) -> tuple[list[Nodes], int]:
    """The prompts' ids as numbers from 0 that name a block *and all before it*, and how many there are. Most traces'
    ids do that already; where one does not, the block gets a number of its own."""
    filled = [ids for ids in prompts if len(ids)]
    if not filled:
        return prompts, 0
    names, numbers = np.unique(np.concatenate(filled), return_inverse=True)
    cuts = np.cumsum([len(ids) for ids in prompts])[:-1]
    parents = np.full(len(names), _UNSEEN, dtype=np.int64)
    others: dict[tuple[int, int], int] = {}
    found: list[Nodes] = []
    for ids in np.split(numbers.astype(np.int64), cuts):
        before = np.concatenate([[_ROOT], ids[:-1]])[: len(ids)]
        known = parents[ids]
        fits = bool(((known == before) | (known == _UNSEEN)).all())
        if fits:
            parents[ids] = before
            fits = bool((parents[ids] == before).all())  # not so when an id is there twice
        if not fits:
            parents[ids] = known
            ids = _one_by_one(ids, parents, others)
        found.append(ids)
    return found, len(names) + len(others)


def _one_by_one(ids: Nodes, parents: Nodes, others: dict[tuple[int, int], int]) -> Nodes:
    node = _ROOT
    nodes: list[int] = []
    for name in ids.tolist():
        if parents[name] == _UNSEEN:
            parents[name] = node
        if parents[name] == node:
            node = name
        else:
            node = others.setdefault((node, name), len(parents) + len(others))
        nodes.append(node)
    return np.array(nodes, dtype=np.int64)


def begin(asked: AskedSessions, seed: int, mean_gap_s: float) -> list[Event]:
    """Everything that happens when sessions start as a Poisson process, in the order of time."""
    draw = random.Random(seed)
    starts_s: list[float] = []
    now_s = 0.0
    for _ in range(asked.num_sessions):
        now_s += draw.expovariate(1.0 / mean_gap_s)
        starts_s.append(now_s)
    events: list[Event] = []
    for number, request in enumerate(asked.requests):
        began_s = starts_s[request.session]
        events.append(Event(began_s + request.start_s, 1, number, True))
        events.append(Event(began_s + request.end_s, 0 if request.end_s > request.start_s else 2, number, False))
    events.sort()
    return events


def next_uses(asked: AskedSessions, events: list[Event]) -> list[list[Piece]]:
    """Per request, in the order they begin: which of its blocks are used next by whom."""
    order = [event.number for event in events if event.begins]
    prompts = [asked.requests[number].nodes for number in order]
    reuse = find_reuse(prompts)
    pieces: list[list[Piece]] = [[] for _ in order]
    by_source = np.lexsort((reuse.start, reuse.source))
    for call, source, stop in zip(
        reuse.call[by_source].tolist(), reuse.source[by_source].tolist(), reuse.stop[by_source].tolist(), strict=True
    ):
        pieces[source].append(Piece(stop, call))
    for at, nodes in enumerate(prompts):
        if not pieces[at] or pieces[at][-1].stop < len(nodes):
            pieces[at].append(Piece(len(nodes), None))
    return pieces
