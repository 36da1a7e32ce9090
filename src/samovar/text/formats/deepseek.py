"""DeepSeek: V3 and R1 write the kind of tool before the separator, then the name, then fenced arguments; V3.1 the name
before the separator and bare arguments after it. An output shows which of the two it is."""

from __future__ import annotations

import re

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.sections import FENCE, Named, SectionMarkers, sections
from samovar.text.formats.source import Source, Steps

MARKERS = SectionMarkers(
    section_begin="<｜tool▁calls▁begin｜>",
    call_begin="<｜tool▁call▁begin｜>",
    separator="<｜tool▁sep｜>",
    call_end="<｜tool▁call▁end｜>",
    section_end="<｜tool▁calls▁end｜>",
)
_KIND = "function"
_NAME = re.compile(r"[^\n`{<]+")


def deepseek(source: Source, out: Emitter) -> Steps[None]:
    yield from sections(source, out, MARKERS, _name)


def _name(source: Source, head: str) -> Steps[Named]:
    first = yield from source.ahead(1)
    if head != _KIND or (first and first in "{["):
        return head, None
    name = (yield from source.word(_NAME)).strip()
    # Not followed by anything, it may be half a name.
    if not (yield from source.ahead(1)):
        return "", None
    yield from source.skip_space()
    if (yield from source.at(FENCE + "json")):
        source.take(len(FENCE + "json"))
    return name, None
