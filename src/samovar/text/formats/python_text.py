"""Python literals to JSON while they arrive: strings, numbers, True, False, None, lists, tuples, dicts. What is none of
these (a name, an expression) becomes a string."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from samovar.text.formats.json_text import escaped, unicode_escape
from samovar.text.formats.source import Sink, Source, Steps

_BODIES = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}
_SCALAR = re.compile(r"[^\s,:=\[\](){}'\"]+")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_ESCAPES |= {char: char for char in "\\'\""}
_HEX = re.compile(r"[0-9a-fA-F]+")
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
# A model that repeats a bracket for ever must not exhaust the stack.
_MAX_DEPTH = 64


def value(source: Source, sink: Sink, depth: int = 0) -> Steps[bool]:
    """One literal as JSON; returns whether it was complete and well-formed."""
    first = yield from source.ahead(1)
    if first and first in _BODIES:
        return (yield from _string(source, sink, first))
    if first and first in _CLOSERS:
        return depth < _MAX_DEPTH and (yield from _bracketed(source, sink, first, depth))
    text = yield from _scalar(source)
    if not (yield from source.ahead(1)):
        # Perhaps only half of it.
        sink(text)
        return False
    sink(_json_scalar(text) if text else "")
    return bool(text)


def _scalar(source: Source) -> Steps[str]:
    parts: list[str] = []
    yield from source.span(_SCALAR, parts.append)
    return "".join(parts)


def _json_scalar(text: str) -> str:
    if text in _WORDS:
        return _WORDS[text]
    try:
        json.loads(text, parse_constant=_refuse)
        return text
    except (ValueError, RecursionError):
        return '"' + escaped(text) + '"'


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _bracketed(source: Source, sink: Sink, opener: str, depth: int) -> Steps[bool]:
    closer = _CLOSERS[opener]
    source.take(1)
    sink("{" if opener == "{" else "[")
    separator = ""
    while True:
        yield from source.skip_space()
        char = yield from source.ahead(1)
        if char == closer:
            source.take(1)
            sink("}" if opener == "{" else "]")
            return True
        if not char:
            return False
        sink(separator)
        if opener == "{" and not (yield from _key(source, sink)):
            return False
        if not (yield from value(source, sink, depth + 1)):
            return False
        separator = ", "
        yield from source.skip_space()
        char = yield from source.ahead(1)
        if char == ",":
            source.take(1)
        elif char != closer:
            return False


def _key(source: Source, sink: Sink) -> Steps[bool]:
    """A key and its colon. JSON knows strings only."""
    first = yield from source.ahead(1)
    if first and first in _BODIES:
        if not (yield from _string(source, sink, first)):
            return False
    else:
        text = yield from _scalar(source)
        sink('"' + escaped(text) + '"')
    yield from source.skip_space()
    if (yield from source.ahead(1)) != ":":
        return False
    source.take(1)
    sink(": ")
    yield from source.skip_space()
    return True


def _string(source: Source, sink: Sink, quote: str) -> Steps[bool]:
    triple = quote * 3
    end = triple if (yield from source.at(triple)) else quote
    source.take(len(end))
    sink('"')

    def encoded(text: str) -> None:
        sink(escaped(text))

    while True:
        yield from source.span(_BODIES[quote], encoded)
        char = yield from source.ahead(1)
        if not char:
            return False
        if char == "\\":
            yield from _escape(source, encoded)
        elif (yield from source.at(end)):
            source.take(len(end))
            sink('"')
            return True
        else:
            encoded(source.take(1))


def _escape(source: Source, sink: Sink) -> Steps[None]:
    ahead = yield from source.ahead(2)
    kind = ahead[1:]
    if kind == "u":
        yield from unicode_escape(source, sink)
    elif kind and kind in "xU":
        count = 4 if kind == "x" else 10
        digits = (yield from source.ahead(count))[2:]
        code = int(digits, 16) if len(digits) == count - 2 and _HEX.fullmatch(digits) else -1
        source.take(count if code >= 0 else 2)
        character = chr(code) if 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        sink(character if code >= 0 else ahead)
    else:
        source.take(len(ahead))
        sink(_ESCAPES.get(kind, ahead))
