"""The answer to `max_tokens: 0`, which only computes a prompt: nothing, whatever the engine generates."""

from __future__ import annotations

from samovar.text.answer import AnswerEvent


class Silent:
    """An OutputParser that reads an output as nothing at all. A job that has it answers nothing."""

    def push(self, text: str) -> list[AnswerEvent]:
        return []

    def finish(self) -> list[AnswerEvent]:
        return []
