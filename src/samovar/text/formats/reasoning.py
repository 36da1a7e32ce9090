"""Reasoning blocks at the beginning of an output, around a parser of what follows them."""

from __future__ import annotations

from dataclasses import dataclass
import re

from samovar.text.answer import AnswerEvent, OutputParser, ReasoningDelta
from samovar.text.formats.source import Markers, Source, Steps

_LINE_BREAKS = re.compile(r"[\r\n]+")
_ALL = re.compile(r"[\s\S]+")


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    name: str
    begin: str
    end: str

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that the parser needs although they may be special tokens."""
        return (self.begin, self.end)

    def opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends inside a block (its last characters suffice)."""
        return prompt.rstrip().endswith(self.begin)

    def make(self, inner: OutputParser, *, inside: bool) -> OutputParser:
        return ReasoningParser(self, inner, inside=inside)


class ReasoningParser:
    """An OutputParser. Line breaks at either end of a block, and after it, are layout: templates put them there."""

    def __init__(self, format: ReasoningFormat, inner: OutputParser, *, inside: bool) -> None:
        """`inside`: the output continues a block that the prompt has opened."""
        self._format = format
        self._inner = inner
        self._source = Source()
        self._events: list[AnswerEvent] = []
        self._reasoning: list[str] = []
        self._held: list[str] = []
        self._steps = self._read(inside)
        next(self._steps, None)

    def push(self, text: str) -> list[AnswerEvent]:
        self._source.feed(text)
        next(self._steps, None)
        return self._drain()

    def finish(self) -> list[AnswerEvent]:
        self._source.end()
        next(self._steps, None)
        return [*self._drain(), *self._inner.finish()]

    def _read(self, inside: bool) -> Steps[None]:
        source, format = self._source, self._format
        # Some models open the block again that the prompt has opened.
        source.mark()
        yield from source.skip_space()
        begins = bool((yield from source.at(format.begin)))
        before = source.release()
        if begins:
            source.take(len(format.begin))
            yield from source.span(_LINE_BREAKS, _nowhere)
        elif inside:
            self._reason(before.lstrip("\r\n"))
        else:
            self._answer(before)
        if begins or inside:
            if (yield from source.until(Markers(format.end), self._reason)):
                source.take(len(format.end))
                self._held.clear()
                yield from source.span(_LINE_BREAKS, _nowhere)
            self._reasoning += self._held
            self._held.clear()
        yield from source.span(_ALL, self._answer)

    def _reason(self, text: str) -> None:
        stripped = text.rstrip("\r\n")
        if stripped:
            self._reasoning += [*self._held, stripped]
            self._held.clear()
        if len(stripped) < len(text):
            self._held.append(text[len(stripped) :])

    def _answer(self, text: str) -> None:
        self._flush()
        self._events += self._inner.push(text)

    def _flush(self) -> None:
        if text := "".join(self._reasoning):
            self._events.append(ReasoningDelta(text))
        self._reasoning.clear()

    def _drain(self) -> list[AnswerEvent]:
        self._flush()
        events, self._events = self._events, []
        return events


def _nowhere(text: str) -> None:
    """Drops text."""


REASONING_FORMATS = {
    name: ReasoningFormat(name, begin, end)
    for begin, end, names in (
        ("<think>", "</think>", ("deepseek_r1", "deepseek_v3", "qwen3", "glm45", "kimi_k2", "minimax_m2")),
        ("[THINK]", "[/THINK]", ("mistral",)),
        ("<seed:think>", "</seed:think>", ("seed_oss",)),
    )
    for name in names
}
"""By the names that --reasoning-parser takes."""


def detect_reasoning(template_source: str) -> str | None:
    """The format whose markers a chat template mentions; None when it knows no reasoning."""
    for marker, name in (("[THINK]", "mistral"), ("<seed:think>", "seed_oss"), ("think>", "qwen3")):
        if marker in template_source:
            return name
    return None
