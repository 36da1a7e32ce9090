"""Sessions as Weka JSON that other tools read: marker at the start of a sub-agent, inner times absolute."""

from __future__ import annotations

from collections.abc import Sequence
import os
from pathlib import Path
import re
from typing import Any

import msgspec

from samovar.base.errors import ConfigError
from samovar.workload.session import SessionTree, Stream, Turn

_DIGITS = 6
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def encode_weka(session: SessionTree) -> bytes:
    """One line of JSON with a line break. Streams that are not marked stand among the main agent's calls."""
    rows: list[tuple[float, int, dict[str, Any]]] = []
    for place, stream in enumerate(session.streams):
        if stream.marked:
            rows.append((stream.start_s, -1, _marker(stream, session)))
        else:
            rows += [(turn.start_s, place, _call(turn)) for turn in stream.turns]
    rows.sort(key=lambda row: row[:2])
    value = {
        "id": session.id,
        "models": _models(session.streams),
        "block_size": session.block_tokens,
        "hash_id_scope": "local",
        "tool_tokens": session.tool_tokens,
        "system_tokens": session.system_tokens,
        "requests": [row for *_, row in rows],
    }
    return msgspec.json.encode(value) + b"\n"


def write_weka(session: SessionTree, path: Path) -> None:
    """Whole or not at all: a reader never sees half a file. Raises ConfigError."""
    replace_file(path, encode_weka(session))


def replace_file(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None


class FileNames:
    """Distinct file names for session ids."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, session_id: str) -> str:
        """Without the suffix."""
        stem = _UNSAFE.sub("_", session_id).strip(".")[:100] or "session"
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(name)
        return name


def _models(streams: Sequence[Stream]) -> list[str]:
    return sorted({turn.model for stream in streams for turn in stream.turns})


def _call(turn: Turn) -> dict[str, Any]:
    row: dict[str, Any] = {
        "t": round(turn.start_s, _DIGITS),
        "type": "s" if turn.streaming else "n",
        "model": turn.model,
        "in": turn.input_tokens,
        "out": turn.output_tokens,
        "hash_ids": turn.blocks.tolist(),
        "input_types": list(turn.input_types),
        "output_types": list(turn.output_types),
        "stop": turn.stop,
    }
    for name, time_s in (("api_time", turn.api_time_s), ("ttft", turn.ttft_s), ("think_time", turn.think_time_s)):
        if time_s is not None:
            row[name] = round(time_s, _DIGITS)
    return row


def _marker(stream: Stream, session: SessionTree) -> dict[str, Any]:
    parent = session.stream(stream.parent) if stream.parent is not None else session.main
    detached = stream.join_turn is None and any(turn.start_s > stream.end_s for turn in parent.turns)
    turns = stream.turns
    return {
        "t": round(stream.start_s, _DIGITS),
        "type": "subagent",
        "agent_id": stream.id,
        "subagent_type": stream.kind or "Subagent",
        "duration_ms": None if detached else round(1000 * (stream.end_s - stream.start_s), 3),
        "total_tokens": None if detached else turns[-1].input_tokens + turns[-1].output_tokens,
        "tool_use_count": None if detached else sum(turn.stop == "tool_use" for turn in turns),
        "status": "async_launched" if detached else "completed",
        "models": _models([stream]),
        "tool_tokens": stream.tool_tokens,
        "system_tokens": stream.system_tokens,
        "requests": [_call(turn) for turn in turns],
    }
