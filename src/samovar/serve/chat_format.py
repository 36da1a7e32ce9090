"""Answers of /v1/chat/completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samovar.serve.choice_text import Delta
from samovar.serve.job import Job, Usage
from samovar.serve.logprobs import chat_logprobs


class ChatFormat:
    """Writes one job's answer. Remembers which choices were introduced (a first chunk has the role)."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._introduced: set[int] = set()
        self._prompt_shown = False

    def chunks(self, index: int, delta: Delta, usage: Usage | None) -> list[dict[str, Any]]:
        """One chunk for the delta, after the role chunk when it is the choice's first. `usage` goes into each."""
        chunks = []
        if index not in self._introduced:
            self._introduced.add(index)
            first = self._chunk([self._choice(index, {"role": "assistant", "content": ""})], usage)
            if self._job.return_token_ids and not self._prompt_shown:
                self._prompt_shown = True
                first["prompt_token_ids"] = self._job.prompt_ids(index)
            chunks.append(first)
        choice = self._choice(index, {"content": delta.text} if delta.text else {})
        if delta.logprobs:
            choice["logprobs"] = chat_logprobs(delta.logprobs)
        if self._job.return_token_ids:
            choice["token_ids"] = delta.token_ids
        if delta.finish_reason is not None:
            choice["finish_reason"] = delta.finish_reason
            choice["stop_reason"] = delta.stop_reason
        chunks.append(self._chunk([choice], usage))
        return chunks

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return self._chunk([], usage)

    def whole(self, deltas: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        answer = self._head("chat.completion")
        answer["choices"] = [self._whole_choice(index, delta) for index, delta in enumerate(deltas)]
        answer["usage"] = usage.fields()
        if self._job.return_token_ids:
            answer["prompt_token_ids"] = self._job.prompt_ids(0)
        return answer

    def _whole_choice(self, index: int, delta: Delta) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": delta.text, "refusal": None},
            "logprobs": chat_logprobs(delta.logprobs) if self._job.text.logprobs >= 0 else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self._job.return_token_ids:
            choice["token_ids"] = delta.token_ids
        return choice

    def _choice(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _chunk(self, choices: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
        chunk = self._head("chat.completion.chunk")
        chunk["choices"] = choices
        if usage is not None:
            chunk["usage"] = usage.fields()
        return chunk

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._job.id, "object": kind, "created": self._job.created_s, "model": self._job.model}
