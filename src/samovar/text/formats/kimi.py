"""Kimi K2: calls by ids such as functions.get_time:0, which hold the name and count the calls of a conversation."""

from __future__ import annotations

import re

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.sections import Named, SectionMarkers, sections
from samovar.text.formats.source import Source, Steps

MARKERS = SectionMarkers(
    section_begin="<|tool_calls_section_begin|>",
    call_begin="<|tool_call_begin|>",
    separator="<|tool_call_argument_begin|>",
    call_end="<|tool_call_end|>",
    section_end="<|tool_calls_section_end|>",
)
_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


def kimi(source: Source, out: Emitter) -> Steps[None]:
    yield from sections(source, out, MARKERS, _name)


def _name(source: Source, head: str) -> Steps[Named]:
    yield from ()
    found = _ID.fullmatch(head)
    return (found[1], head) if found else ("", None)
