"""Runs a family's steps over an output that arrives in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from samovar.text.answer import AnswerEvent
from samovar.text.formats.emitter import Emitter
from samovar.text.formats.source import Source, Steps

Family: TypeAlias = Callable[[Source, Emitter], Steps[None]]
"""Reads a whole output. It returns only at the end of the text."""


class Machine:
    """An OutputParser. Time is linear in the text, however it is cut."""

    def __init__(self, family: Family, joint: str = "") -> None:
        self._source = Source()
        self._out = Emitter(joint)
        self._steps = family(self._source, self._out)
        next(self._steps, None)

    def push(self, text: str) -> list[AnswerEvent]:
        self._source.feed(text)
        next(self._steps, None)
        return self._out.drain()

    def finish(self) -> list[AnswerEvent]:
        self._source.end()
        assert next(self._steps, "done") == "done", "a parser waits for text after its end"
        self._out.finish()
        return self._out.drain()
