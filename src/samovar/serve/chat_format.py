"""Answers of /v1/chat/completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samovar.base.errors import SamovarError
from samovar.serve.choice_text import Delta
from samovar.serve.errors import error_body
from samovar.serve.job import Job, Usage, closing
from samovar.serve.json_output import DONE, KEEP_ALIVE, event
from samovar.serve.logprobs import chat_logprobs
from samovar.text.answer import (
    AnswerEvent,
    Call,
    CallArguments,
    CallBegin,
    CallEnd,
    ReasoningDelta,
    TextDelta,
    gather,
)


class ChatFormat:
    """Writes one job's answer. Remembers which choices were introduced (a first chunk has the role), and the calls that
    have no arguments yet."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._introduced: set[int] = set()
        self._bare: set[tuple[int, int]] = set()
        self._prompt_shown = False

    @property
    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def begin(self) -> bytes:
        return b""

    def deltas(self, index: int, delta: Delta, usage: Usage) -> bytes:
        """A chunk per event of the delta, after the role chunk when it is the choice's first. What belongs to the delta
        as a whole (log probabilities, ids, the end) is in the last one."""
        chunks = [] if index in self._introduced else [self._introduction(index)]
        self._introduced.add(index)
        contents = [content for happened in delta.events if (content := self._content(index, happened)) is not None]
        choices = [self._choice(index, content) for content in contents or [{}]]
        last = choices[-1]
        if delta.logprobs:
            last["logprobs"] = chat_logprobs(delta.logprobs)
        if self._job.return_token_ids:
            last["token_ids"] = delta.token_ids
        if delta.finish_reason is not None:
            last["finish_reason"] = delta.finish_reason
            last["stop_reason"] = delta.stop_reason
        chunks += [self._chunk([choice]) for choice in choices]
        if self._job.continuous_usage:
            for chunk in chunks:
                chunk["usage"] = usage.fields()
        return b"".join([event(chunk) for chunk in chunks])

    def end(self, usage: Usage) -> bytes:
        if not self._job.include_usage and usage.cache_report is None:
            return DONE
        return event({**self._chunk([]), **closing(self._job, usage)}) + DONE

    def error(self, error: SamovarError) -> bytes:
        return event(error_body(error)) + DONE

    def whole(self, answers: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        answer = self._head("chat.completion")
        answer["choices"] = [self._whole_choice(index, delta) for index, delta in enumerate(answers)]
        answer.update(closing(self._job, usage, whole=True))
        if self._job.return_token_ids:
            answer["prompt_token_ids"] = self._job.prompt_ids(0)
        return answer

    def _introduction(self, index: int) -> dict[str, Any]:
        chunk = self._chunk([self._choice(index, {"role": "assistant", "content": ""})])
        if self._job.kv_hints is not None and not self._introduced:
            chunk["kv_hints"] = self._job.kv_hints
        if self._job.return_token_ids and not self._prompt_shown:
            self._prompt_shown = True
            chunk["prompt_token_ids"] = self._job.prompt_ids(index)
        return chunk

    def _content(self, index: int, happened: AnswerEvent) -> dict[str, Any] | None:
        """A chunk's `delta`; None for what this API has no word for."""
        match happened:
            case TextDelta(text=text):
                return {"content": text}
            case ReasoningDelta(text=text):
                return {"reasoning_content": text}
            case CallBegin(index=call, name=name, id=given):
                self._bare.add((index, call))
                function = {"name": name, "arguments": ""}
                id = given or self._job.call_id(index, call)
                return {"tool_calls": [{"index": call, "id": id, "type": "function", "function": function}]}
            case CallArguments(index=call, text=text):
                self._bare.discard((index, call))
                return {"tool_calls": [{"index": call, "function": {"arguments": text}}]}
            case CallEnd(index=call) if (index, call) in self._bare:
                return {"tool_calls": [{"index": call, "function": {"arguments": "{}"}}]}
            case _:
                return None

    def _whole_choice(self, index: int, delta: Delta) -> dict[str, Any]:
        answer = gather(delta.events)
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if not answer.calls and not answer.text:
            message["content"] = ""
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [self._whole_call(index, at, call) for at, call in enumerate(answer.calls)]
        choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "logprobs": chat_logprobs(delta.logprobs) if self._job.text.logprobs >= 0 else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self._job.return_token_ids:
            choice["token_ids"] = delta.token_ids
        return choice

    def _whole_call(self, index: int, at: int, call: Call) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id or self._job.call_id(index, at), "type": "function", "function": function}

    def _choice(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": choices}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._job.id, "object": kind, "created": self._job.created_s, "model": self._job.model}
