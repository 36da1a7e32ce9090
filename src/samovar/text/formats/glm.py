"""GLM 4.5: <tool_call>name, then <arg_key> and <arg_value> in turns, </tool_call>. Values are typed by the schema."""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.json_calls import close
from samovar.text.formats.made_arguments import MadeArguments
from samovar.text.formats.source import Markers, Source, Steps
from samovar.text.formats.tagged_values import TaggedValue

BEGIN, END = "<tool_call>", "</tool_call>"
_KEY, _KEY_END, _VALUE, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
MARKERS = (BEGIN, END, _KEY, _KEY_END, _VALUE, _VALUE_END)
_BEGIN = Markers(BEGIN)
_TEXT = re.compile(r"[^<\n]+")
_VALUE_TEXT = TaggedValue(_VALUE_END, (_KEY, END))


def glm(source: Source, out: Emitter, schemas: Mapping[str, Mapping[str, Any]]) -> Steps[None]:
    """`schemas`: of the arguments, by the tools' names."""
    while (yield from source.until(_BEGIN, out.text)):
        source.mark()
        source.take(len(BEGIN))
        yield from source.skip_space()
        name = (yield from source.word(_TEXT)).strip()
        yield from source.skip_space()
        if name and (yield from source.at(_KEY, END)):
            source.release()
            out.begin(name)
            yield from _arguments(source, out, schemas.get(name))
        else:
            out.text(source.release())


def _arguments(source: Source, out: Emitter, schema: Mapping[str, Any] | None) -> Steps[None]:
    """Up to the call's end, which it consumes."""
    made = MadeArguments(out, schema)
    complete = True
    while complete and (yield from source.at(_KEY)):
        key = yield from _key(source)
        if not key:
            break
        made.key(key)
        complete = yield from _VALUE_TEXT.read(source, made.piece)
        made.close(complete=complete)
    # Where the output ends and another argument might follow, the object stays open: nobody shall run half a call.
    cut = yield from source.accept(_KEY)
    if complete and not cut:
        made.end()
    out.end()
    if (yield from source.ahead(1)):
        # A faulty key is text.
        out.text(source.release())
    yield from close(source, out, END)


def _key(source: Source) -> Steps[str]:
    """Consumes all up to the value's first character; "" and a mark that stays, where that is not there."""
    source.mark()
    source.take(len(_KEY))
    key = (yield from source.word(_TEXT)).strip()
    if not (yield from source.at(_KEY_END)):
        return ""
    source.take(len(_KEY_END))
    yield from source.skip_space()
    if not key or not (yield from source.at(_VALUE)):
        return ""
    source.take(len(_VALUE))
    source.release()
    return key
