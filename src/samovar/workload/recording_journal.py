"""The journal of a session that is being recorded, and the session file it becomes.

One line for each finished call, appended at once: a crash loses the calls in flight and at most a torn last line. A
prompt is written as what it shares with the stream's previous one and the ids behind that, so that a long session
costs its distinct blocks, not the square of its length.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from samovar.base.errors import TraceError
from samovar.workload.chains import place
from samovar.workload.session import SessionTree, Stream, Turn, frozen_ids
from samovar.workload.weka_writer import write_weka

SUFFIX = ".journal"


class JournalHead(msgspec.Struct, tag_field="kind", tag="session"):
    id: str
    block_tokens: int


class JournalCall(msgspec.Struct, tag_field="kind", tag="call", omit_defaults=True):
    stream: int
    """0 is the main agent; others are its sub-agents, numbered as they appeared."""
    start_s: float
    end_s: float
    input_tokens: int
    output_tokens: int
    kept: int
    """Blocks shared with the stream's previous prompt."""
    new: list[int]
    model: str = ""
    stop: str = ""
    ttft_s: float | None = None


_line = msgspec.json.Decoder(JournalHead | JournalCall)


def encode_line(entry: JournalHead | JournalCall) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def finish_journal(journal: Path) -> Path | None:
    """Writes the session file that the journal stands for, beside it, and removes the journal. None for a journal
    without a call, which is removed too. Raises TraceError or ConfigError, and then leaves the journal alone."""
    session = read_journal(journal)
    path = None
    if session is not None:
        path = journal.with_suffix(".json")
        write_weka(session, path)
    journal.unlink(missing_ok=True)
    return path


def read_journal(journal: Path) -> SessionTree | None:
    try:
        lines = journal.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(f"{journal}: cannot be read: {error.strerror or error}") from None
    head: JournalHead | None = None
    calls: list[JournalCall] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entry = _line.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines):  # no line break behind it: torn by a crash
                break
            raise TraceError(f"{journal}: line {number}: {error}") from None
        if isinstance(entry, JournalHead):
            head = entry
        else:
            calls.append(entry)
    return _session(head, calls, journal) if head is not None and calls else None


def _session(head: JournalHead, calls: list[JournalCall], journal: Path) -> SessionTree:
    began_s = min(call.start_s for call in calls)
    prompts: dict[int, list[int]] = {}
    turns: dict[int, list[Turn]] = {}
    for call in calls:
        ids = prompts.get(call.stream, [])[: call.kept] + call.new
        prompts[call.stream] = ids
        turns.setdefault(call.stream, []).append(_turn(call, ids, began_s))
    ordered = {stream: sorted(found, key=lambda turn: turn.start_s) for stream, found in sorted(turns.items())}
    first = next(iter(ordered))
    main = Stream("main", "main", tuple(ordered.pop(first)))
    streams = [main]
    for number, found in ordered.items():
        agent = Stream(f"agent_{number:03}", "subagent", tuple(found), marked=True)
        streams.append(place(agent, main, agent.end_s, waited_for=True))
    return SessionTree(head.id, head.block_tokens, tuple(streams), namespace=head.id, source=str(journal))


def _turn(call: JournalCall, ids: list[int], began_s: float) -> Turn:
    return Turn(
        start_s=call.start_s - began_s,
        end_s=call.end_s - began_s,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        blocks=frozen_ids(np.array(ids, dtype=np.int64)),
        model=call.model,
        stop=call.stop,
        api_time_s=call.end_s - call.start_s,
        ttft_s=call.ttft_s,
    )
