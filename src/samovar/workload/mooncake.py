"""Mooncake's JSONL: one request a line, with blocks of 512 tokens and times in milliseconds.

The format knows no sessions unless a line names one (`session_id`, as AIPerf writes it): a request that continues the
whole prompt of an earlier one is taken for the next turn of the same conversation. Ids are shared by the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from samovar.base.errors import TraceError
from samovar.workload.chains import split_conversations
from samovar.workload.jsonl import Line, lines_of, located
from samovar.workload.limits import MAX_TIME_S, MAX_TOKENS
from samovar.workload.session import SessionTree, Stream, Turn, frozen_ids

BLOCK_TOKENS = 512
MIN_SHARED_BLOCKS = 2
"""One common block is the system prompt that unrelated conversations start with."""


class MooncakeRow(msgspec.Struct):
    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float | None = None
    delay: float | None = None
    """Milliseconds after the end of the session's previous request, which is taken to end at once."""
    session_id: str | None = None


_decoder = msgspec.json.Decoder(MooncakeRow)


def read_mooncake(path: Path, *, block_tokens: int = BLOCK_TOKENS) -> list[SessionTree]:
    """The file's conversations, by their first request. Raises TraceError naming file and line."""
    named: dict[str, list[Turn]] = {}
    unnamed: list[Turn] = []
    for line in lines_of(path):
        row = located(line, _decoder.decode)
        turns = unnamed if row.session_id is None else named.setdefault(row.session_id, [])
        turns.append(_turn(row, line, block_tokens, turns[-1].start_s if turns else 0.0))
    unnamed.sort(key=lambda turn: turn.start_s)
    conversations = dict(_numbered(split_conversations(unnamed, block_tokens, MIN_SHARED_BLOCKS)))
    conversations.update(named)
    if not conversations:
        raise TraceError(f"{path}: holds no request")
    sessions = [_session(name, turns, path, block_tokens) for name, turns in conversations.items()]
    return sorted(sessions, key=lambda session: session.start_s or 0.0)


def _numbered(conversations: list[list[Turn]]) -> Iterator[tuple[str, list[Turn]]]:
    for number, turns in enumerate(conversations):
        yield f"conversation-{number:05}", turns


def _turn(row: MooncakeRow, line: Line, block_tokens: int, previous_s: float) -> Turn:
    time_ms = row.timestamp if row.timestamp is not None else 1000 * previous_s + (row.delay or 0.0)
    if not 0 <= time_ms <= 1000 * MAX_TIME_S:
        given = f"delay is {row.delay}" if row.timestamp is None else f"timestamp is {row.timestamp}"
        raise line.error(f"{given}; a time must be from 0 to {1000 * MAX_TIME_S:g} ms")
    longest = max(row.input_length, row.output_length)
    if longest > MAX_TOKENS:
        raise line.error(f"a length is {longest}; it must be at most {MAX_TOKENS}")
    limit = -(-row.input_length // block_tokens)
    if row.input_length < 0 or row.output_length < 0 or len(row.hash_ids) > limit:
        raise line.error(
            f"{len(row.hash_ids)} hash_ids, input_length {row.input_length}, output_length {row.output_length}: "
            f"lengths must be at least 0, and blocks of {block_tokens} tokens at most {max(limit, 0)}"
        )
    try:
        blocks = frozen_ids(np.array(row.hash_ids, dtype=np.int64))
    except OverflowError:
        raise line.error("hash_ids: an id does not fit into 64 bits") from None
    start_s = time_ms / 1000
    return Turn(start_s, start_s, row.input_length, row.output_length, blocks)


def _session(name: str, turns: list[Turn], path: Path, block_tokens: int) -> SessionTree:
    """Times move so that the session begins at 0."""
    turns = sorted(turns, key=lambda turn: turn.start_s)
    began_s = turns[0].start_s
    moved = tuple(
        Turn(turn.start_s - began_s, turn.end_s - began_s, turn.input_tokens, turn.output_tokens, turn.blocks)
        for turn in turns
    )
    return SessionTree(
        name, block_tokens, (Stream("main", "main", moved),), namespace=str(path), source=str(path), start_s=began_s
    )
