"""One streamed request: what came back, and when. Never raises for what a server or a network can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
import time
from typing import Any

import httpx
import msgspec

ERROR_CHARACTERS = 200


@dataclass(slots=True)
class Answer:
    """Times are `time.monotonic` seconds."""

    start_s: float = 0.0
    end_s: float = 0.0
    first_s: float | None = None
    last_s: float | None = None
    error: str = ""
    """Empty: it ended well."""
    overflow: bool = False
    """The server said that prompt and answer exceed its context."""
    unreachable: bool = False
    """The connection could not be made, or broke."""
    pieces: int = 0
    finished: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


async def ask(
    client: httpx.AsyncClient, url: str, body: bytes, headers: dict[str, str], timeout_s: float, answer: Answer
) -> None:
    """Fills `answer`, also when it is cancelled, which closes the connection and so tells the server to stop."""
    answer.start_s = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            await _stream(client, url, body, headers, answer)
    except TimeoutError:
        answer.error = f"no complete answer in {timeout_s:g} s"
    except httpx.HTTPError as error:
        answer.error = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS].rstrip(": ")
        answer.unreachable = True
    except msgspec.DecodeError as error:
        answer.error = f"the stream is not JSON: {error}"[:ERROR_CHARACTERS]
    finally:
        answer.end_s = time.monotonic()


async def _stream(client: httpx.AsyncClient, url: str, body: bytes, headers: dict[str, str], answer: Answer) -> None:
    async with client.stream("POST", url, content=body, headers=headers) as response:
        if response.status_code != 200:
            _refused(answer, response.status_code, await response.aread())
            return
        async for event in _events(response):
            _take(answer, event)
            if answer.error:
                return
    if not answer.finished:
        answer.error, answer.unreachable = "the stream ended before the answer did", True


async def _events(response: httpx.Response) -> AsyncIterator[Any]:
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            data = line[5:].strip()
            if data != "[DONE]":
                yield msgspec.json.decode(data)


def _take(answer: Answer, event: Any) -> None:
    if not isinstance(event, dict):
        answer.error = "the stream has an event that is no object"
        return
    if event.get("error"):
        _explain(answer, "error in the stream", event)
        return
    usage = event.get("usage")
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        answer.prompt_tokens = _count(usage.get("prompt_tokens"))
        answer.output_tokens = _count(usage.get("completion_tokens"))
        answer.cached_tokens = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        if answer.cached_tokens is not None and answer.cached_tokens > (answer.prompt_tokens or 0):
            answer.error = (
                f"the usage is impossible: {answer.cached_tokens} cached of {answer.prompt_tokens} prompt tokens"
            )
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            _piece(answer, choice)


def _piece(answer: Answer, choice: dict[str, Any]) -> None:
    """A chunk of a completion always stands for tokens, also when they make no whole character yet; one of a chat may
    hold a role only."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        text = delta.get("content")
        says = bool(text or delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"))
    else:
        text, says = choice.get("text"), True
    ids = choice.get("token_ids")
    if says or ids:
        answer.last_s = time.monotonic()
        answer.first_s = answer.first_s or answer.last_s
        answer.pieces += 1
        answer.text.append(text if isinstance(text, str) else "")
        if isinstance(ids, list):
            answer.token_ids.extend(token for token in ids if isinstance(token, int))
    if choice.get("finish_reason") is not None:
        answer.finished = True


def _refused(answer: Answer, status: int, body: bytes) -> None:
    try:
        event = msgspec.json.decode(body)
    except msgspec.DecodeError:
        event = body.decode("utf-8", "replace")
    _explain(answer, f"HTTP {status}", event)


def _explain(answer: Answer, what: str, event: Any) -> None:
    error = event.get("error", event) if isinstance(event, dict) else event
    message = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    code = str(error.get("code", "")) if isinstance(error, dict) else ""
    answer.error = f"{what}: {message}"[:ERROR_CHARACTERS]
    answer.overflow = (
        "context_length" in code or "context length" in message.lower() or "context size" in message.lower()
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
