"""Answers of /v1/completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samovar.base.errors import SamovarError
from samovar.serve.choice_text import Delta
from samovar.serve.errors import error_body
from samovar.serve.job import Job, Usage, closing
from samovar.serve.json_output import DONE, KEEP_ALIVE, event
from samovar.serve.logprobs import completion_logprobs


class CompletionFormat:
    """Writes one job's answer. Remembers which choices have begun (an echoed prompt comes first)."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._begun: set[int] = set()

    @property
    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def begin(self) -> bytes:
        return b""

    def deltas(self, index: int, delta: Delta, usage: Usage) -> bytes:
        opening = not self._begun
        first = index not in self._begun
        self._begun.add(index)
        choice = self._choice(index, delta, self._job.echo_of(index) if first else "")
        if self._job.return_token_ids:
            choice["token_ids"] = delta.token_ids
            if first:
                choice["prompt_token_ids"] = self._job.prompt_ids(index)
        answer = self._answer([choice], usage if self._job.continuous_usage else None)
        if opening and self._job.kv_hints is not None:
            answer["kv_hints"] = self._job.kv_hints
        return event(answer)

    def end(self, usage: Usage) -> bytes:
        if not self._job.include_usage and usage.cache_report is None:
            return DONE
        return event({**self._answer([], None), **closing(self._job, usage)}) + DONE

    def error(self, error: SamovarError) -> bytes:
        return event(error_body(error)) + DONE

    def whole(self, answers: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        choices = []
        for index, delta in enumerate(answers):
            choice = self._choice(index, delta, self._job.echo_of(index))
            if self._job.return_token_ids:
                choice["token_ids"] = delta.token_ids
                choice["prompt_token_ids"] = self._job.prompt_ids(index)
            choices.append(choice)
        return {**self._answer(choices, None), **closing(self._job, usage, whole=True)}

    def _choice(self, index: int, delta: Delta, before: str) -> dict[str, Any]:
        return {
            "index": index,
            "text": before + delta.text,
            "logprobs": completion_logprobs(delta.logprobs) if self._job.text.logprobs >= 0 else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }

    def _answer(self, choices: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "id": self._job.id,
            "object": "text_completion",
            "created": self._job.created_s,
            "model": self._job.model,
            "choices": choices,
        }
        if usage is not None:
            answer["usage"] = usage.fields()
        return answer
