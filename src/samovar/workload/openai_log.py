"""Logs of OpenAI-style requests: JSONL, each line a request body (or an object that holds one) with its messages.

Understood: a bare body `{"model", "messages", ...}`; `{"body"|"request": {...}, "response": {...}}` as batch files and
proxies write it; times under `timestamp`, `created`, `start_time`, `created_at` (seconds, milliseconds or ISO 8601);
durations under `duration_s`, `latency_s`, `duration_ms`, `latency_ms` or as `end_time`; token counts from `usage`.

There is no tokenizer here. Tokens are counted in bytes of text, at the rate that the log's own `usage` figures give
(four bytes where it has none); what repeats is exact to the byte, how many tokens it is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import count
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from samovar.base.errors import TraceError
from samovar.workload.chains import unmarked_streams
from samovar.workload.jsonl import Line, lines_of, located
from samovar.workload.limits import MAX_TIME_S, MAX_TOKENS
from samovar.workload.session import SessionTree, Stream, Turn, frozen_ids
from samovar.workload.trace_file import without_gz

BLOCK_TOKENS = 64
BYTES_PER_TOKEN = 4.0
MILLISECONDS_FROM = 1e11
"""A number of seconds this large would lie in the year 5138: it is milliseconds."""
_SESSION_FIELDS = ("session_id", "conversation_id", "thread_id", "prompt_cache_key")
_STOPS = {"tool_calls": "tool_use", "function_call": "tool_use", "stop": "end_turn", "length": "max_tokens"}


@dataclass(frozen=True, slots=True)
class _Entry:
    session: str
    start_s: float
    duration_s: float | None
    model: str
    text: bytes
    prompt_tokens: int | None
    output_tokens: int | None
    output_bytes: int
    stop: str
    input_types: tuple[str, ...]
    streaming: bool


def read_openai_log(path: Path, *, block_tokens: int = BLOCK_TOKENS) -> list[SessionTree]:
    """One session for each session id; the requests without one are one session, divided by what continues what.
    Raises TraceError naming file and line."""
    entries = [_entry(line, located(line, msgspec.json.decode)) for line in lines_of(path)]
    if not entries:
        raise TraceError(f"{path}: holds no request")
    entries.sort(key=lambda entry: entry.start_s)
    known = [(len(entry.text), entry.prompt_tokens) for entry in entries if entry.prompt_tokens]
    rate = sum(size for size, _ in known) / sum(tokens for _, tokens in known) if known else BYTES_PER_TOKEN
    block_bytes = max(1, round(block_tokens * rate))
    ids = _BlockNumbers(block_bytes)
    first_s = entries[0].start_s
    sessions: dict[str, list[_Entry]] = {}
    for entry in entries:
        sessions.setdefault(entry.session, []).append(entry)
    return [_session(name, calls, ids, rate, block_tokens, first_s, path) for name, calls in sessions.items()]


def _session(
    name: str, calls: list[_Entry], ids: _BlockNumbers, rate: float, block_tokens: int, first_s: float, path: Path
) -> SessionTree:
    began_s = calls[0].start_s
    turns = []
    for entry in calls:
        start_s = entry.start_s - began_s
        blocks = ids.of(entry.text)
        tokens = min(
            max(math.ceil(len(entry.text) / rate), len(blocks) * block_tokens), (len(blocks) + 1) * block_tokens - 1
        )
        output = entry.output_tokens if entry.output_tokens is not None else math.ceil(entry.output_bytes / rate)
        turns.append(
            Turn(
                start_s,
                start_s + (entry.duration_s or 0.0),
                tokens,
                output,
                frozen_ids(np.array(blocks, dtype=np.int64)),
                model=entry.model,
                stop=entry.stop,
                input_types=entry.input_types,
                streaming=entry.streaming,
                api_time_s=entry.duration_s,
            )
        )
    streams: tuple[Stream, ...] = tuple(unmarked_streams(turns, block_tokens))
    return SessionTree(
        name or without_gz(path).stem,
        block_tokens,
        streams,
        namespace=str(path),
        source=str(path),
        start_s=began_s - first_s,
    )


class _BlockNumbers:
    """Numbers blocks of text by everything up to their end, in order of appearance."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._numbers: dict[bytes, int] = {}
        self._next = count()

    def of(self, text: bytes) -> list[int]:
        """Of the full blocks."""
        key = b""
        numbers = []
        for end in range(self._block_bytes, len(text) + 1, self._block_bytes):
            key = blake2b(key + text[end - self._block_bytes : end], digest_size=16).digest()
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = next(self._next)
            numbers.append(number)
        return numbers


def _entry(line: Line, value: Any) -> _Entry:
    if not isinstance(value, Mapping):
        raise line.error("is no JSON object")
    body = _mapping(value, "body", "request") or value
    response = _mapping(value, "response") or {}
    response = _mapping(response, "body") or response
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, Mapping) for m in messages):
        raise line.error("$.messages is missing or no list of objects")
    usage = _mapping(response, "usage") or _mapping(value, "usage") or {}
    output = _output(response, value)
    start_s = _time(line, value, "timestamp", "start_time", "created", "created_at")
    if start_s is None:
        start_s = _time(line, response, "created", "created_at")
    if start_s is None:
        raise line.error("has no time (timestamp, start_time, created or created_at)")
    return _Entry(
        session=_session_name(value, body),
        start_s=start_s,
        duration_s=_duration(line, value, start_s),
        model=str(body.get("model") or ""),
        text=_rendered(body.get("tools"), messages),
        prompt_tokens=_tokens(line, usage, "prompt_tokens", "input_tokens"),
        output_tokens=_tokens(line, usage, "completion_tokens", "output_tokens"),
        output_bytes=0 if output is None else len(msgspec.json.encode(output)),
        stop=_stop(response),
        input_types=_news(messages),
        streaming=bool(body.get("stream", False)),
    )


def _rendered(tools: object, messages: list[Mapping[str, Any]]) -> bytes:
    """A prompt's text, such that prompts which begin alike do so here."""
    parts = [msgspec.json.encode(tools)] if tools else []
    parts += [msgspec.json.encode({key: value for key, value in m.items() if value is not None}) for m in messages]
    return b"\n".join(parts)


def _news(messages: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """What came after the last answer."""
    kinds: list[str] = []
    for message in reversed(messages):
        role = message.get("role")
        if role == "assistant":
            break
        if role in ("tool", "function"):
            kinds.append("tool_result")
        elif role == "user":
            kinds.append("tool_result" if _holds_tool_result(message.get("content")) else "text")
    return tuple(dict.fromkeys(reversed(kinds)))


def _holds_tool_result(content: object) -> bool:
    return isinstance(content, list) and any(isinstance(p, Mapping) and p.get("type") == "tool_result" for p in content)


def _session_name(value: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    metadata = _mapping(body, "metadata") or {}
    for source in (value, body, metadata):
        for name in _SESSION_FIELDS:
            found = source.get(name)
            if isinstance(found, str) and found:
                return found
    return ""


def _output(response: Mapping[str, Any], value: Mapping[str, Any]) -> object:
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0].get("message") or choices[0].get("text")
    return value.get("output") or value.get("completion") or response.get("content")


def _stop(response: Mapping[str, Any]) -> str:
    choices = response.get("choices")
    reason = response.get("stop_reason")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        reason = choices[0].get("finish_reason")
    return _STOPS.get(reason, reason) if isinstance(reason, str) else ""


def _mapping(source: Mapping[str, Any], *names: str) -> Mapping[str, Any] | None:
    return next((source[name] for name in names if isinstance(source.get(name), Mapping)), None)


def _tokens(line: Line, usage: Mapping[str, Any], *names: str) -> int | None:
    """The first of them that is stated; None when it is no number, as some servers write it."""
    name = next((name for name in names if name in usage), names[0])
    value = usage.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if not 0 <= value <= MAX_TOKENS:
        raise line.error(f"usage.{name} is {value}; it must be from 0 to {MAX_TOKENS}")
    return value


def _number(value: object) -> float | None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if ok else None  # type: ignore[arg-type]


def _time(line: Line, source: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = source.get(name)
        number = _number(value)
        if number is not None:
            return _bounded(line, name, number / 1000 if number > MILLISECONDS_FROM else number)
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise line.error(f"$.{name} is {value!r}: not a number and not an ISO 8601 time") from None
            return _bounded(line, name, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return None


def _duration(line: Line, value: Mapping[str, Any], start_s: float) -> float | None:
    for name, scale in (("duration_s", 1.0), ("latency_s", 1.0), ("duration_ms", 1e-3), ("latency_ms", 1e-3)):
        number = _number(value.get(name))
        if number is not None:
            return max(0.0, _bounded(line, name, number * scale))
    end_s = _time(line, value, "end_time", "completed_at")
    return None if end_s is None else max(0.0, end_s - start_s)


def _bounded(line: Line, name: str, time_s: float) -> float:
    if abs(time_s) > MAX_TIME_S:
        raise line.error(f"$.{name} is {time_s:g} s; it must be at most {MAX_TIME_S:g} s")
    return time_s
