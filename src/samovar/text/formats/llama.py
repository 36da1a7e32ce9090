"""Llama 3: bare JSON objects with `name` and `parameters`, several separated by semicolons, maybe after
<|python_tag|>. Such an object counts where a line begins: elsewhere it is part of a text."""

from __future__ import annotations

from collections.abc import Collection

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.json_calls import CallReader
from samovar.text.formats.source import SPACE, Markers, Source, Steps

TAG = "<|python_tag|>"
_LINE_END = Markers("\n", TAG)


def llama(source: Source, out: Emitter, known: Collection[str]) -> Steps[None]:
    """`known`: names of tools, of which a call without arguments is a call too."""
    reader = CallReader(source, out, bare=True, known=known)
    while True:
        yield from source.span(SPACE, out.text)
        while (yield from _object_follows(source)):
            if not (yield from reader.call()):
                break
            yield from _separator(source)
        out.text(source.release())
        if not (yield from source.until(_LINE_END, out.text)):
            return


def _object_follows(source: Source) -> Steps[bool]:
    """Whether an object begins here or after a tag, which is marked and consumed."""
    source.mark()
    if (yield from source.at(TAG)):
        source.take(len(TAG))
        yield from source.skip_space()
    return (yield from source.ahead(1)) == "{"


def _separator(source: Source) -> Steps[None]:
    """Consumes what may separate two calls and marks it, since it is text if other text follows."""
    source.mark()
    yield from source.skip_space()
    if (yield from source.ahead(1)) == ";":
        source.take(1)
        yield from source.skip_space()
    if not (yield from source.ahead(1)):
        source.release()
