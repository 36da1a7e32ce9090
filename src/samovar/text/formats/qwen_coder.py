"""Qwen3-Coder: <tool_call> <function=name> <parameter=key> value </parameter> ... </function> </tool_call>, tags and
values on lines of their own. The outer tag may be missing; around JSON it means the same as in Hermes."""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.hermes import BEGIN, END, tagged_json
from samovar.text.formats.json_calls import close
from samovar.text.formats.made_arguments import MadeArguments
from samovar.text.formats.source import Markers, Source, Steps
from samovar.text.formats.tagged_values import TaggedValue

_FUNCTION, _FUNCTION_END, _PARAMETER = "<function=", "</function>", "<parameter="
_BEGINS = Markers(BEGIN, _FUNCTION)
_NAME = re.compile(r"[^<>\n]+")
_VALUE = TaggedValue("</parameter>", (_PARAMETER, _FUNCTION_END, END), trimmed=True)


def qwen_coder(source: Source, out: Emitter, schemas: Mapping[str, Mapping[str, Any]]) -> Steps[None]:
    """`schemas`: of the arguments, by the tools' names."""
    while begin := (yield from source.until(_BEGINS, out.text)):
        source.mark()
        if begin == BEGIN:
            source.take(len(BEGIN))
            yield from source.skip_space()
            if not (yield from source.at(_FUNCTION)):
                yield from tagged_json(source, out)
                continue
        yield from _function(source, out, schemas, tagged=begin == BEGIN)


def _function(source: Source, out: Emitter, schemas: Mapping[str, Mapping[str, Any]], tagged: bool) -> Steps[None]:
    name = yield from _name(source, _FUNCTION)
    if not name:
        out.text(source.release())
        return
    source.release()
    out.begin(name)
    faulty = yield from _arguments(source, MadeArguments(out, schemas.get(name)))
    out.end()
    if faulty and (yield from source.ahead(1)):
        out.text(source.release())
    elif (yield from source.accept(_FUNCTION_END)):
        source.release()
        if tagged:
            yield from close(source, out, END)
    else:
        yield from close(source, out, END)


def _arguments(source: Source, made: MadeArguments) -> Steps[bool]:
    """Up to the function's end; returns whether a faulty tag comes before that. What is not read stays marked."""
    complete = True
    while complete:
        source.mark()
        yield from source.skip_space()
        if not (yield from source.at(_PARAMETER)):
            break
        key = yield from _name(source, _PARAMETER)
        if not key:
            if (yield from source.ahead(1)):
                made.end()
            return True
        source.release()
        if (yield from source.at("\n")):
            source.take(1)
        made.key(key)
        complete = yield from _VALUE.read(source, made.piece)
        made.close(complete=complete)
    # Where the output ends and another argument might follow, the object stays open: nobody shall run half a call.
    cut = yield from source.accept(_PARAMETER)
    if complete and not cut:
        made.end()
    return False


def _name(source: Source, tag: str) -> Steps[str]:
    """Consumes `tag` and the name up to its ">"; "" where there is none."""
    source.take(len(tag))
    name = (yield from source.word(_NAME)).strip()
    if not (yield from source.at(">")):
        return ""
    source.take(1)
    return name
