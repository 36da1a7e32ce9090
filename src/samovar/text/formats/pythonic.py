"""Calls in Python's spelling: [f(a=1), g(b="x")], where a line begins, maybe between markers (Llama 4, LFM2)."""

from __future__ import annotations

import json
import re

from samovar.text.formats import python_text
from samovar.text.formats.emitter import Emitter
from samovar.text.formats.source import SPACE, Markers, Source, Steps

BEGINS = ("<|python_start|>", "<|tool_call_start|>")
ENDS = ("<|python_end|>", "<|tool_call_end|>")
_LINE_END = Markers("\n", *BEGINS)
_NAME = re.compile(r"[\w.\-]+")


def pythonic(source: Source, out: Emitter) -> Steps[None]:
    while True:
        yield from source.span(SPACE, out.text)
        source.mark()
        begin = yield from source.at(*BEGINS)
        if begin:
            source.take(len(begin))
            yield from source.skip_space()
        found = (yield from source.ahead(1)) == "[" and (yield from _calls(source, out))
        if found:
            source.mark()
            yield from source.skip_space()
            if (yield from source.accept(*ENDS)):
                source.release()
        out.text(source.release())
        if not (yield from source.until(_LINE_END, out.text)):
            return


def _calls(source: Source, out: Emitter) -> Steps[bool]:
    """A list of calls; whether there was one. What is no call stays marked."""
    source.take(1)
    found = False
    while True:
        yield from source.skip_space()
        if found and (yield from source.accept("]")):
            source.release()
            return True
        name = yield from _word(source)
        if not name or not (yield from source.at("(")):
            return found
        source.take(1)
        yield from source.skip_space()
        key = ""
        # Without arguments by name it is an expression, such as [f(x) for x in y].
        if not (yield from source.at(")")) and not (key := (yield from _key(source))):
            return found
        source.release()
        out.begin(name)
        complete = yield from _arguments(source, out, key)
        out.end()
        found = True
        source.mark()
        yield from source.skip_space()
        if not complete:
            if not (yield from source.ahead(1)):
                source.release()
            return found
        if (yield from source.at(",")):
            source.take(1)
        elif not (yield from source.stands("]")):
            return found


def _arguments(source: Source, out: Emitter, key: str) -> Steps[bool]:
    """From the first value on, to the closing parenthesis; whether that came."""
    before = "{"
    while key:
        out.arguments(before + json.dumps(key, ensure_ascii=False) + ": ")
        before = ", "
        if not (yield from python_text.value(source, out.arguments)):
            return False
        yield from source.skip_space()
        source.mark()
        key = ""
        if (yield from source.at(",")):
            source.take(1)
            yield from source.skip_space()
            if not (yield from source.at(")")) and not (key := (yield from _key(source))):
                return False
        source.release()
    if not (yield from source.at(")")):
        return False
    source.take(1)
    out.arguments("{}" if before == "{" else "}")
    return True


def _key(source: Source) -> Steps[str]:
    """A name with its equals sign and space behind; "" where there is none."""
    key = yield from _word(source)
    yield from source.skip_space()
    if not key or not (yield from source.at("=")):
        return ""
    source.take(1)
    yield from source.skip_space()
    return key


def _word(source: Source) -> Steps[str]:
    word = yield from source.word(_NAME)
    return "" if word[:1].isdigit() else word
