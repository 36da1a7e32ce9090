"""JSON read leniently and without being built: values pass as they are written, strings also without their escapes.

Models leave out brackets and write raw line breaks into strings; nothing here fails on that. Each reader starts at the
value's first character and returns whether the value was complete.
"""

from __future__ import annotations

import json
import re

from samovar.text.formats.source import Sink, Source, Steps

_STRING_BODY = re.compile(r'[^"\\]+')
_PLAIN = re.compile(r'[^"{}\[\]<]+')
_SCALAR = re.compile(r'[^,:{}\[\]"\s<]+')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def escaped(text: str) -> str:
    """`text` as it stands inside a JSON string. Character by character: pieces may be escaped one by one."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def value(source: Source, sink: Sink, stop: str = "") -> Steps[bool]:
    """Any value, as it is written. `stop` (begins with "<"): a text that ends it wherever it stands outside a
    string."""
    first = yield from source.ahead(1)
    if first == '"':
        return (yield from string(source, sink))
    if first and first in "{[":
        sink(source.take(1))
        return (yield from rest(source, sink, stop))
    yield from source.span(_SCALAR, sink)
    return bool((yield from source.ahead(1)))


def rest(source: Source, sink: Sink, stop: str = "") -> Steps[bool]:
    """The rest of an object or array after its opening bracket. Kinds of brackets are not compared."""
    depth = 1
    while depth:
        yield from source.span(_PLAIN, sink)
        char = yield from source.ahead(1)
        if not char:
            return False
        if char == '"':
            yield from string(source, sink)
            continue
        if char == "<" and stop and (yield from source.at(stop)):
            return False
        if char != "<":
            depth += 1 if char in "{[" else -1
        sink(source.take(1))
    return True


def string(source: Source, sink: Sink) -> Steps[bool]:
    """A string with its quotes and escapes."""
    sink(source.take(1))
    while True:
        yield from source.span(_STRING_BODY, sink)
        char = yield from source.ahead(1)
        if char != "\\":
            sink(source.take(len(char)))
            return char == '"'
        sink(source.take(len((yield from source.ahead(2)))))


def unquoted(source: Source, sink: Sink) -> Steps[bool]:
    """The text that a string stands for. What is no JSON escape stays as it is, half a surrogate pair is U+FFFD."""
    source.take(1)
    while True:
        yield from source.span(_STRING_BODY, sink)
        char = yield from source.ahead(1)
        if char != "\\":
            source.take(len(char))
            return char == '"'
        ahead = yield from source.ahead(2)
        if len(ahead) < 2:
            source.take(1)
            return False
        if ahead == "\\u":
            yield from unicode_escape(source, sink)
        else:
            source.take(2)
            sink(_ESCAPES.get(ahead[1], ahead))


def unicode_escape(source: Source, sink: Sink) -> Steps[None]:
    """The character, or pair of surrogates, that the escape at this place stands for."""
    ahead = yield from source.ahead(6)
    if not _HEX.fullmatch(ahead[2:]):
        sink(source.take(2))
        return
    code = int(ahead[2:], 16)
    if 0xD800 <= code < 0xDC00:
        pair = yield from source.ahead(12)
        low = int(pair[8:], 16) if pair[6:8] == "\\u" and _HEX.fullmatch(pair[8:]) else 0
        if 0xDC00 <= low < 0xE000:
            source.take(12)
            sink(chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)))
            return
    source.take(6)
    sink("\ufffd" if 0xD800 <= code < 0xE000 else chr(code))
