"""The prompts that the official harness sent (`agentx profile --export-level raw`), through a cache that never forgets.

The file has them by the process that recorded them, so it is read twice: once for when each was sent, and then prompt
by prompt in that order. A file may have gigabytes; no more than one prompt is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from samovar.base.errors import ConfigError
from samovar.workload.metrics_ceiling import InfiniteCache

T = TypeVar("T")

RAW = "profile_export_raw.jsonl"

Tokenise = Callable[[Sequence[Mapping[str, Any]]], Sequence[int]]
"""Messages of a chat request to the token ids that the server makes of them, chat template included."""


@dataclass(frozen=True, slots=True)
class SentPrompt:
    prompt_tokens: int
    ceiling_tokens: int
    """What an infinite cache finds of it."""


class _Metadata(msgspec.Struct):
    request_start_ns: int
    x_request_id: str


class _When(msgspec.Struct):
    metadata: _Metadata


class _Payload(msgspec.Struct):
    messages: list[dict[str, Any]] | None = None


class _Row(msgspec.Struct):
    payload: _Payload | None = None


def read_sent(path: Path, tokenise: Tokenise, block_tokens: int) -> dict[str, SentPrompt]:
    """By request id, warm-up included. A request that never left, or was no chat, is not among them. Raises
    ConfigError, naming file and line, and what `tokenise` raises."""
    cache = InfiniteCache(block_tokens)
    sent: dict[str, SentPrompt] = {}
    for request_id, messages in _in_order(path):
        ids = np.asarray(tokenise(messages), dtype=np.int32)
        sent[request_id] = SentPrompt(len(ids), cache.look_up(ids))
    return sent


def _in_order(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    rows: list[tuple[int, int, int, str]] = []
    when, what = msgspec.json.Decoder(_When), msgspec.json.Decoder(_Row)
    try:
        with path.open("rb") as file:
            at = 0
            for number, line in enumerate(file, 1):
                if line.strip():
                    meta = _decoded(when, line, path, number).metadata
                    rows.append((meta.request_start_ns, number, at, meta.x_request_id))
                at += len(line)
            for _, number, at, request_id in sorted(rows):
                file.seek(at)
                payload = _decoded(what, file.readline(), path, number).payload
                if payload is not None and payload.messages:
                    yield request_id, payload.messages
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes, path: Path, number: int) -> T:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}, line {number}: not a raw record of the harness: {error}") from error
