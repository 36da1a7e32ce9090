"""Hermes and Qwen: <tool_call> around a JSON object, or around an array of them (SmolLM2)."""

from __future__ import annotations

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.json_calls import CallReader, close
from samovar.text.formats.source import Markers, Source, Steps

BEGIN = "<tool_call>"
END = "</tool_call>"
_BEGIN = Markers(BEGIN)


def hermes(source: Source, out: Emitter) -> Steps[None]:
    while (yield from source.until(_BEGIN, out.text)):
        source.mark()
        source.take(len(BEGIN))
        yield from tagged_json(source, out)


def tagged_json(source: Source, out: Emitter) -> Steps[None]:
    """What follows a marked and consumed BEGIN. Several objects may share a tag; a missing END is no fault."""
    reader = CallReader(source, out, stop=END)
    yield from source.skip_space()
    while (char := (yield from source.ahead(1))) and char in "{[":
        if not (yield from reader.calls()):
            return
        if (yield from _separated(source)):
            continue
        yield from close(source, out, END)
        return
    out.text(source.release())


def _separated(source: Source) -> Steps[bool]:
    """Whether another object follows within the tag; if so, what stands between is consumed. The mark stays."""
    source.mark()
    yield from source.skip_space()
    return (yield from source.ahead(1)) == "{"
