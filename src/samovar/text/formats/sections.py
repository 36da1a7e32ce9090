"""Calls between special tokens: a section of calls, each a head, a separator and JSON arguments (DeepSeek, Kimi)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import re
from typing import TypeAlias

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.json_calls import arguments, close
from samovar.text.formats.source import Markers, Source, Steps

Named: TypeAlias = tuple[str, str | None]
"""Name and id of a call; an empty name: it is none."""

FENCE = "```"
_HEAD = re.compile(r"[^<\n]+")


@dataclass(frozen=True, slots=True)
class SectionMarkers:
    section_begin: str
    call_begin: str
    separator: str
    call_end: str
    section_end: str

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.section_begin, self.call_begin, self.separator, self.call_end, self.section_end)


def sections(
    source: Source, out: Emitter, markers: SectionMarkers, read_name: Callable[[Source, str], Steps[Named]]
) -> Steps[None]:
    """`read_name` makes name and id of a head, with the separator consumed, and may read on. Calls outside a section
    count as well."""
    begins = Markers(markers.section_begin, markers.call_begin)
    while begin := (yield from source.until(begins, out.text)):
        source.mark()
        if begin == markers.section_begin:
            source.take(len(begin))
            yield from source.skip_space()
        found = False
        while (yield from _call(source, out, markers, read_name)):
            found = True
            source.mark()
            yield from source.skip_space()
        if found:
            yield from close(source, out, markers.section_end)
        else:
            out.text(source.release())


def _call(
    source: Source, out: Emitter, markers: SectionMarkers, read_name: Callable[[Source, str], Steps[Named]]
) -> Steps[bool]:
    if not (yield from source.at(markers.call_begin)):
        return False
    source.mark()
    source.take(len(markers.call_begin))
    name, call_id = "", None
    head = yield from source.word(_HEAD)
    if (yield from source.at(markers.separator)):
        source.take(len(markers.separator))
        name, call_id = yield from read_name(source, head.strip())
    if not name:
        out.text(source.release())
        return False
    source.release()
    out.begin(name, call_id)
    source.mark()
    yield from source.skip_space()
    first = yield from source.ahead(1)
    if first and first in '{["n':
        source.release()
        yield from arguments(source, out.arguments, markers.call_end)
    out.end()
    source.mark()
    yield from source.skip_space()
    # Arguments may stand in a code fence.
    yield from source.accept(FENCE)
    yield from close(source, out, markers.call_end)
    return True
