"""Trace files of any known format as sessions; broken ones named, or skipped and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from samovar.base.errors import TraceError
from samovar.workload.mooncake import read_mooncake
from samovar.workload.openai_log import read_openai_log
from samovar.workload.recording_journal import SUFFIX as JOURNAL
from samovar.workload.session import SessionTree
from samovar.workload.trace_file import SUFFIXES, is_trace, open_trace, without_gz
from samovar.workload.weka import parse_weka


@dataclass(slots=True)
class ReadCounts:
    """What `read_sessions` has met so far."""

    files: int = 0
    sessions: int = 0
    skipped: list[str] = field(default_factory=list)
    """One message for each file left out."""


def read_session(path: Path) -> SessionTree:
    """The only session of a file. Raises TraceError, also for a file with several."""
    sessions = read_file(path)
    if len(sessions) != 1:
        raise TraceError(f"{path}: holds {len(sessions)} sessions; a file with one is needed here")
    return sessions[0]


def read_sessions(
    paths: Sequence[Path],
    *,
    skip_bad: bool = False,
    counts: ReadCounts | None = None,
    find_unmarked: bool = True,
) -> Iterator[SessionTree]:
    """All sessions of files and folders, one file at a time, in the order of `paths` (a folder's files by name).
    `skip_bad`: a broken file is left out and noted in `counts` instead of raising TraceError. `find_unmarked` as in
    `parse_weka`."""
    counts = counts if counts is not None else ReadCounts()
    for path in trace_files(paths):
        counts.files += 1
        try:
            sessions = read_file(path, find_unmarked=find_unmarked)
        except TraceError as error:
            if not skip_bad:
                raise
            counts.skipped.append(error.message)
            continue
        counts.sessions += len(sessions)
        yield from sessions


def trace_files(paths: Sequence[Path]) -> list[Path]:
    """Folders replaced by the trace files in them. Raises TraceError for a path or folder that holds none."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if is_trace(file) and file.is_file())
            if not inside:
                recording = sum(1 for file in path.iterdir() if file.suffix == JOURNAL)
                hint = f"; {recording} sessions are still being recorded: end the server first" if recording else ""
                raise TraceError(f"{path}: no {', '.join('*' + suffix for suffix in SUFFIXES)} in this folder{hint}")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise TraceError(f"{path}: no such file or folder")
    if not files:
        raise TraceError("no trace files given")
    return files


def read_file(path: Path, *, find_unmarked: bool = True) -> list[SessionTree]:
    """Tells the format from the content: one object with `requests`, or lines with `hash_ids` or `messages`.
    `find_unmarked` as in `parse_weka`. Raises TraceError."""
    with open_trace(path) as file:
        head = file.readline()
        if _is_weka(head, path):
            return [parse_weka(head + file.read(), path, find_unmarked=find_unmarked)]
    if b'"hash_ids"' in head or b'"input_length"' in head:
        return read_mooncake(path)
    if b'"messages"' in head:
        return read_openai_log(path)
    raise TraceError(
        f"{path}: line 1: none of the known formats: a session object with 'requests', or lines with 'hash_ids' "
        "(Mooncake) or 'messages' (OpenAI log)"
    )


def _is_weka(head: bytes, path: Path) -> bool:
    if without_gz(path).suffix == ".json":
        return True
    return b'"requests"' in head and b'"messages"' not in head
