"""Answers of the Messages API, whole and as events."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from samovar.base.errors import SamovarError
from samovar.serve.anthropic.blocks import Blocks, content_of
from samovar.serve.anthropic.errors import error_body
from samovar.serve.anthropic.silent import Silent
from samovar.serve.choice_text import Delta
from samovar.serve.job import Job, Usage
from samovar.serve.json_output import named_event

PING = named_event("ping", {"type": "ping"})


class MessagesFormat:
    """Writes one job's answer; it has one choice. A message begins with the first news of the answer, because only then
    it is known how much of the prompt was cached, which clients read from there."""

    def __init__(self, job: Job, max_model_len: int, request_id: str) -> None:
        self._job = job
        self._request_id = request_id
        # A limit that lies at the end of the context is the context's, whatever was asked for.
        self._fills_context = job.prompt_tokens[0] + job.requests[0].sampling.max_tokens >= max_model_len
        signature = b64encode(sha256(f"{job.nonce} thinking".encode()).digest()).decode()
        self._blocks = Blocks(self._call_id, signature)
        self._silent = job.parser is Silent
        self._begun = False
        self._last: Delta | None = None

    @property
    def keep_alive(self) -> bytes:
        return PING

    def begin(self) -> bytes:
        return b""

    def deltas(self, index: int, delta: Delta, usage: Usage) -> bytes:
        self._last = delta
        events = [happened for event in delta.events for happened in self._blocks.take(event)]
        written = b"".join([named_event(event["type"], event) for event in events])
        return self._beginning(usage) + written

    def end(self, usage: Usage) -> bytes:
        assert self._last is not None, "an answer ends with a delta"
        events: list[dict[str, Any]] = [
            *self._blocks.finish(),
            {"type": "message_delta", "delta": self._ending(self._last), **self._closing(usage)},
            {"type": "message_stop"},
        ]
        return b"".join([named_event(event["type"], event) for event in events])

    def error(self, error: SamovarError) -> bytes:
        return named_event("error", error_body(error, self._request_id))

    def whole(self, answers: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        (answer,) = answers
        events = [happened for event in answer.events for happened in self._blocks.take(event)]
        content = content_of([*events, *self._blocks.finish()])
        return {**self._message(usage), "content": content, **self._ending(answer), **self._closing(usage)}

    def _beginning(self, usage: Usage) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return named_event("message_start", {"type": "message_start", "message": self._message(usage)}) + PING

    def _message(self, usage: Usage) -> dict[str, Any]:
        message: dict[str, Any] = {
            "id": self._job.id,
            "type": "message",
            "role": "assistant",
            "model": self._job.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(usage),
        }
        if self._job.kv_hints is not None:
            message["kv_hints"] = self._job.kv_hints
        return message

    def _ending(self, last: Delta) -> dict[str, Any]:
        stop = last.stop_reason if isinstance(last.stop_reason, str) else None
        match last.finish_reason:
            case "tool_calls":
                return {"stop_reason": "tool_use", "stop_sequence": None}
            case "length":
                reason = "model_context_window_exceeded" if self._fills_context else "max_tokens"
                return {"stop_reason": reason, "stop_sequence": None}
            case _:
                return {"stop_reason": "end_turn" if stop is None else "stop_sequence", "stop_sequence": stop}

    def _closing(self, usage: Usage) -> dict[str, Any]:
        """The final usage, and beside it what the client asked to know about the cache."""
        fields: dict[str, Any] = {"usage": self._usage(usage)}
        if usage.cache_report is not None:
            fields["cache_report"] = usage.cache_report
        return fields

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return usage_fields(replace(usage, completion_tokens=0, reasoning_tokens=0) if self._silent else usage)

    def _call_id(self, call: int) -> str:
        return f"toolu_{self._job.call_id(0, call).removeprefix('call_')}"


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Input tokens are those that had to be computed; the three inputs make up the prompt. Nothing is charged for
    writing the cache."""
    fields: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
    if usage.reasoning_tokens:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return fields
