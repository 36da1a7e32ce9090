"""Custom tools take raw text, while formats carry JSON: the text stands in {"input": "..."} and is unwrapped here."""

from __future__ import annotations

from collections.abc import Collection
import re

from samovar.text.answer import AnswerEvent, CallArguments, CallBegin, CallEnd, OutputParser
from samovar.text.formats import json_text
from samovar.text.formats.source import Sink, Source, Steps

INPUT = "input"
_ALL = re.compile(r"[\s\S]+")


class CustomInputs:
    """An OutputParser over another: arguments of calls to the tools `names` become their raw input, piece by piece.
    Arguments without an input are passed on as they are."""

    def __init__(self, inner: OutputParser, names: Collection[str]) -> None:
        self._inner = inner
        self._names = frozenset(names)
        self._open: _Unwrapping | None = None

    def push(self, text: str) -> list[AnswerEvent]:
        return self._unwrapped(self._inner.push(text))

    def finish(self) -> list[AnswerEvent]:
        return self._unwrapped(self._inner.finish())

    def _unwrapped(self, events: list[AnswerEvent]) -> list[AnswerEvent]:
        out: list[AnswerEvent] = []
        for event in events:
            if isinstance(event, CallBegin) and event.name in self._names:
                self._open = _Unwrapping()
            elif self._open is not None and isinstance(event, CallArguments | CallEnd):
                text = self._open.push(event.text) if isinstance(event, CallArguments) else self._open.finish()
                if text:
                    out.append(CallArguments(event.index, text))
                if isinstance(event, CallArguments):
                    continue
                self._open = None
            out.append(event)
        return out


def wrapped(text: str) -> str:
    """Raw input as the JSON arguments that a model writes for it."""
    return '{"' + INPUT + '": "' + json_text.escaped(text) + '"}'


class _Unwrapping:
    """Of one call."""

    def __init__(self) -> None:
        self._source = Source()
        self._parts: list[str] = []
        self._steps = _unwrap(self._source, self._parts.append)
        next(self._steps, None)

    def push(self, text: str) -> str:
        self._source.feed(text)
        return self._next()

    def finish(self) -> str:
        self._source.end()
        return self._next()

    def _next(self) -> str:
        next(self._steps, None)
        text = "".join(self._parts)
        self._parts.clear()
        return text


def _unwrap(source: Source, sink: Sink) -> Steps[None]:
    source.mark()
    yield from source.skip_space()
    if (yield from source.ahead(1)) == "{" and (yield from _find_input(source)):
        source.release()
        read = json_text.unquoted if (yield from source.ahead(1)) == '"' else json_text.value
        yield from read(source, sink)
        sink = _nowhere
    sink(source.release())
    yield from source.span(_ALL, sink)


def _find_input(source: Source) -> Steps[bool]:
    """Consumes an object up to the value of its input; False when it has none."""
    separator = "{"
    while separator in ("{", ","):
        source.take(1)
        yield from source.skip_space()
        if (yield from source.ahead(1)) != '"':
            return False
        key: list[str] = []
        yield from json_text.unquoted(source, key.append)
        yield from source.skip_space()
        if (yield from source.ahead(1)) != ":":
            return False
        source.take(1)
        yield from source.skip_space()
        if "".join(key) == INPUT:
            return True
        yield from json_text.value(source, _nowhere)
        yield from source.skip_space()
        separator = yield from source.ahead(1)
    return False


def _nowhere(text: str) -> None:
    """Drops text."""
