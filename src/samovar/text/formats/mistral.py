"""Mistral: [TOOL_CALLS] and an array of JSON objects, or (from tokenizer version 11) [TOOL_CALLS]name[ARGS]{...} for
each call, maybe with [CALL_ID]id after the name."""

from __future__ import annotations

import re

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.json_calls import CallReader, arguments
from samovar.text.formats.source import Markers, Source, Steps

BEGIN = "[TOOL_CALLS]"
ARGUMENTS = "[ARGS]"
CALL_ID = "[CALL_ID]"
_BEGIN = Markers(BEGIN)
_NAME = re.compile(r"[^\[{\n]+")


def mistral(source: Source, out: Emitter) -> Steps[None]:
    reader = CallReader(source, out)
    while (yield from source.until(_BEGIN, out.text)):
        source.mark()
        source.take(len(BEGIN))
        yield from source.skip_space()
        first = yield from source.ahead(1)
        if first and first in "[{":
            yield from reader.calls()
        else:
            yield from _named(source, out)


def _named(source: Source, out: Emitter) -> Steps[None]:
    name = (yield from source.word(_NAME)).strip()
    call_id: str | None = None
    if (yield from source.at(CALL_ID)):
        source.take(len(CALL_ID))
        call_id = (yield from source.word(_NAME)).strip() or None
    # Where the server hides special tokens, [ARGS] is not there.
    separator = yield from source.at(ARGUMENTS, "{")
    if not name or not separator:
        out.text(source.release())
        return
    if separator == ARGUMENTS:
        source.take(len(ARGUMENTS))
    source.release()
    out.begin(name, call_id)
    # A mark, because white space without arguments behind it is text.
    source.mark()
    yield from source.skip_space()
    if (yield from source.ahead(1)) == "{":
        source.release()
        yield from arguments(source, out.arguments)
        out.end()
    else:
        out.end()
        out.text(source.release())
