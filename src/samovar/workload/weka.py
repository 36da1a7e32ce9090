"""Session files as kv-cache-tester and AgentX write them ("Weka"): one JSON object per session.

What cannot be true is refused; what is only incomplete is read. Prompts may have fewer ids than full blocks: recorders
leave out what changes with every call, and tokens without an id are taken for new ones.

Two things the files leave open are settled here. Inner times of a sub-agent are relative when they lie before its
marker, as in AgentX. And some files put the marker where the sub-agent *ended* (its recorded duration then leads back
exactly to the end of the parent's call that started it): such files are told from the times, and read so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from samovar.base.errors import TraceError
from samovar.base.shown import shown
from samovar.workload.chains import place, unmarked_streams
from samovar.workload.jsonl import validation_text
from samovar.workload.limits import MAX_BLOCK_TOKENS, MAX_TIME_S, MAX_TOKENS
from samovar.workload.session import BlockIds, SessionTree, Stream, Turn, frozen_ids
from samovar.workload.trace_file import without_gz

DEFAULT_BLOCK_TOKENS = 64
SPAWN_SLACK_S = 2.0
CALLS, SUBAGENT = ("n", "s"), "subagent"


class WekaRow(msgspec.Struct, omit_defaults=True):
    """A call, or with type "subagent" a group of calls."""

    t: float
    type: str = "n"
    model: str = ""
    in_: int | None = msgspec.field(default=None, name="in")
    out: int | None = None
    hash_ids: list[int] | None = None
    input_types: list[str] | None = None
    output_types: list[str] | None = None
    stop: str | None = None
    api_time: float | None = None
    ttft: float | None = None
    think_time: float | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    duration_ms: float | None = None
    total_tokens: int | None = None
    tool_use_count: int | None = None
    status: str | None = None
    models: list[str] | None = None
    tool_tokens: int | None = None
    system_tokens: int | None = None
    requests: list[WekaRow] | None = None


class WekaFile(msgspec.Struct):
    requests: list[WekaRow]
    id: str = ""
    models: list[str] | None = None
    block_size: int = DEFAULT_BLOCK_TOKENS
    hash_id_scope: str = "local"
    tool_tokens: int | None = None
    system_tokens: int | None = None


_decoder = msgspec.json.Decoder(WekaFile)


def parse_weka(data: bytes, path: Path, *, find_unmarked: bool = True) -> SessionTree:
    """`path` is for messages and for the id where the file has none. `find_unmarked`: tell the main agent's calls from
    those of sub-agents that the file does not mark; else they all are the main agent's. Raises TraceError."""
    try:
        file = _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path}: {validation_text(error)}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{path}: not JSON: {_with_line(str(error), data)}") from None
    if file.hash_id_scope != "local":
        raise TraceError(f"{path}: $.hash_id_scope is {file.hash_id_scope!r}; only 'local' is known")
    if not 1 <= file.block_size <= MAX_BLOCK_TOKENS:
        raise TraceError(f"{path}: $.block_size is {file.block_size}; it must be from 1 to {MAX_BLOCK_TOKENS}")
    return _session(file, path, find_unmarked)


def _session(file: WekaFile, path: Path, find_unmarked: bool) -> SessionTree:
    reader = _Reader(path, file.block_size)
    tool_tokens, system_tokens = reader.prefix(file, "$")
    markers: list[tuple[str, WekaRow]] = []
    turns: list[Turn] = []
    for at, row in enumerate(file.requests):
        where = f"$.requests[{at}]"
        if row.type == SUBAGENT:
            reader.marker(row, where)
            markers.append((where, row))
        else:
            turns.append(reader.turn(row, where, 0.0))
    if not turns:
        raise TraceError(f"{path}: $.requests has no call of the main agent")
    turns.sort(key=lambda turn: turn.start_s)
    if find_unmarked:
        streams = unmarked_streams(turns, file.block_size)
    else:
        streams = [Stream("main", "main", tuple(turns))]
    streams[0] = replace(streams[0], tool_tokens=tool_tokens, system_tokens=system_tokens)
    at_end = _markers_at_end(markers, streams[0])
    taken = {stream.id for stream in streams}
    for where, row in markers:
        stream = reader.subagent(row, where, streams[0], at_end, taken)
        if stream is not None:
            taken.add(stream.id)
            streams.append(stream)
    name = file.id or without_gz(path).stem
    return SessionTree(name, file.block_size, tuple(streams), namespace=str(path), source=str(path))


def _markers_at_end(markers: Sequence[tuple[str, WekaRow]], main: Stream) -> bool:
    """Whether the file puts a sub-agent's marker where it ended: its inner times are relative and, counted back from
    the marker, it began when no call of the main agent was running. All of them must agree."""
    judged = False
    for _, row in markers:
        if row.requests and min(inner.t for inner in row.requests) >= row.t > 0:
            return False
        if row.duration_ms is None or row.duration_ms <= 1000 * SPAWN_SLACK_S:
            continue
        before = [turn for turn in main.turns if turn.start_s <= row.t]
        if not before:
            return False
        if row.t - row.duration_ms / 1000 < before[-1].end_s - SPAWN_SLACK_S:
            return False
        judged = True
    return judged


class _Reader:
    """Turns rows into turns; knows where they stand, for messages."""

    def __init__(self, path: Path, block_tokens: int) -> None:
        self._path = path
        self._block_tokens = block_tokens

    def turn(self, row: WekaRow, where: str, offset_s: float) -> Turn:
        if row.type not in CALLS:
            nested = " inside a sub-agent" if row.type == SUBAGENT else ""
            raise TraceError(f"{self._path}: {where}.type is {shown(row.type)}{nested}; a call's is 'n' or 's'")
        if row.in_ is None or row.hash_ids is None:
            missing = "in" if row.in_ is None else "hash_ids"
            raise TraceError(f"{self._path}: {where} has no field {missing!r}, and without it a call says nothing")
        self._tokens(where, ("in", row.in_), ("out", row.out))
        self._times(where, ("t", row.t), ("think_time", row.think_time))
        self._durations(where, ("api_time", row.api_time), ("ttft", row.ttft))
        start_s = row.t + offset_s
        return Turn(
            start_s=start_s,
            end_s=start_s + (row.api_time or 0.0),
            input_tokens=row.in_,
            output_tokens=row.out or 0,
            blocks=self._blocks(row.hash_ids, row.in_, where),
            model=row.model,
            stop=row.stop or "",
            input_types=tuple(row.input_types or ()),
            output_types=tuple(row.output_types or ()),
            streaming=row.type == "s",
            api_time_s=row.api_time,
            think_time_s=row.think_time,
            ttft_s=row.ttft,
        )

    def marker(self, row: WekaRow, where: str) -> None:
        """Checks what stands in the marker of a sub-agent itself."""
        self._times(where, ("t", row.t))
        if row.duration_ms is not None:
            self._durations(where, ("duration_ms", row.duration_ms), unit_s=1e-3)

    def prefix(self, row: WekaFile | WekaRow, where: str) -> tuple[int, int]:
        """Lengths of tool definitions and system prompt."""
        self._tokens(where, ("tool_tokens", row.tool_tokens), ("system_tokens", row.system_tokens))
        return row.tool_tokens or 0, row.system_tokens or 0

    def _tokens(self, where: str, *fields: tuple[str, int | None]) -> None:
        for name, tokens in fields:
            if tokens is not None and not 0 <= tokens <= MAX_TOKENS:
                raise TraceError(f"{self._path}: {where}.{name} is {tokens}; it must be from 0 to {MAX_TOKENS}")

    def _times(self, where: str, *fields: tuple[str, float | None]) -> None:
        """These may lie a little before their zero: clocks of several machines were compared."""
        for name, time_s in fields:
            if time_s is not None and not abs(time_s) <= MAX_TIME_S:
                raise TraceError(f"{self._path}: {where}.{name} is {time_s}; it must be at most {MAX_TIME_S:g} seconds")

    def _durations(self, where: str, *fields: tuple[str, float | None], unit_s: float = 1.0) -> None:
        for name, value in fields:
            if value is not None and not 0 <= value * unit_s <= MAX_TIME_S:
                most = MAX_TIME_S / unit_s
                raise TraceError(f"{self._path}: {where}.{name} is {value}; it must be a duration from 0 to {most:g}")

    def _blocks(self, ids: list[int], input_tokens: int, where: str) -> BlockIds:
        limit = -(-input_tokens // self._block_tokens)
        if len(ids) > limit:
            raise TraceError(
                f"{self._path}: {where}.hash_ids has {len(ids)} ids; {input_tokens} tokens in blocks of "
                f"{self._block_tokens} have at most {limit}"
            )
        try:
            blocks = np.array(ids, dtype=np.int64)
        except OverflowError:
            raise TraceError(f"{self._path}: {where}.hash_ids: an id does not fit into 64 bits") from None
        if not (blocks[1:] > blocks[:-1]).all():  # rising ids, the usual case, need no sorting
            names, counts = np.unique(blocks, return_counts=True)
            if len(names) < len(blocks):
                twice = int(names[counts.argmax()])
                raise TraceError(
                    f"{self._path}: {where}.hash_ids has the id {twice} {counts.max()} times; an id stands for all "
                    "that precedes it too, so a prompt has each at most once"
                )
        return frozen_ids(blocks)

    def subagent(self, row: WekaRow, where: str, main: Stream, at_end: bool, taken: set[str]) -> Stream | None:
        """None for a group without calls: it says nothing about the load."""
        if not row.requests:
            return None
        tool_tokens, system_tokens = self.prefix(row, where)
        length_s = (row.duration_ms or 0.0) / 1000
        began_s = row.t - length_s if at_end and row.duration_ms is not None else row.t
        relative = min(inner.t for inner in row.requests) < row.t
        offset_s = began_s if relative else 0.0
        turns = [self.turn(inner, f"{where}.requests[{at}]", offset_s) for at, inner in enumerate(row.requests)]
        turns.sort(key=lambda turn: turn.start_s)
        name = row.agent_id or f"agent-{len(taken):03}"
        while name in taken:
            name += "'"
        stream = Stream(
            name,
            "subagent",
            tuple(turns),
            kind=row.subagent_type or "",
            marked=True,
            tool_tokens=tool_tokens,
            system_tokens=system_tokens,
        )
        end_s = stream.end_s if row.duration_ms is None else began_s + length_s
        return place(stream, main, end_s, waited_for=row.status != "async_launched")


def _with_line(text: str, data: bytes) -> str:
    """Adds the line to a message that ends in "(byte 1234)", or says that the file ends too early."""
    _, found, rest = text.rpartition("(byte ")
    end = int(rest.rstrip(")")) if found else len(data)
    lines = data.count(b"\n", 0, end) + 1
    return f"{text} (line {lines})"
