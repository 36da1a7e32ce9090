"""Calls that are JSON objects: {"name": ..., "arguments": {...}}, alone or in an array.

Arguments flow on as they are written as soon as the name is known; before that they are held. `parameters` is another
word for them, a string holding JSON is opened, null stands for none. A call that never gets a name is text.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
import re

from samovar.text.formats import json_text
from samovar.text.formats.emitter import Emitter
from samovar.text.formats.source import Sink, Source, Steps

_BRACKETS = re.compile(r"[\s\]}]+")
_ARGUMENT_KEYS = ("arguments", "parameters")
# Of an object without any marker around it: with another key it is no call but the answer itself.
_KEYS_OF_BARE = (*_ARGUMENT_KEYS, "name", "id", "type")


@dataclass(slots=True)
class _Call:
    """What is known of a call so far."""

    name: str = ""
    id: str | None = None
    early: list[str] = field(default_factory=list)
    """Arguments that came before the name."""
    has_arguments: bool = False
    begun: bool = False
    no_call: bool = False


class CallReader:
    """Reads calls at the opening bracket.

    `bare`: nothing but its form marks a call; it needs a name and arguments then, or a name that is `known`. `stop`: a
    text, beginning with "<", that ends a call wherever it stands outside a string.
    """

    def __init__(
        self, source: Source, out: Emitter, *, stop: str = "", bare: bool = False, known: Collection[str] = ()
    ) -> None:
        self._source = source
        self._out = out
        self._stop = stop
        self._bare = bare
        self._known = known

    def calls(self) -> Steps[bool]:
        """An object or an array of objects; False when it gave nothing but text."""
        source = self._source
        source.mark()
        if (yield from source.ahead(1)) == "{":
            return (yield from self.call())
        source.take(1)
        found = False
        while True:
            yield from source.skip_space()
            char = yield from source.ahead(1)
            if char == "{":
                if not (yield from self.call()):
                    return found
                found = True
                source.mark()
            elif found and char == ",":
                source.take(1)
            elif found and (char == "]" or not char):
                source.take(len(char))
                source.release()
                return True
            else:
                self._out.text(source.release())
                return found

    def call(self) -> Steps[bool]:
        """An object; False when it was no call: its text is given back then, with what was marked before it."""
        source, call = self._source, _Call()
        source.mark()
        source.take(1)
        more = True
        while more:
            yield from source.skip_space()
            more = yield from self._member(call)
            if more:
                yield from source.skip_space()
                more = (yield from source.ahead(1)) == ","
                if more:
                    source.take(1)
        closed = (yield from source.ahead(1)) == "}"
        if closed:
            source.take(1)
        if call.name and not call.begun and not call.no_call and self._is_call(call, closed):
            self._begin(call)
        if call.begun:
            self._out.end()
            return True
        self._out.text(source.release())
        if self._bare and not closed:
            # Nothing inside an object that is text may be taken for a call.
            yield from json_text.rest(source, self._out.text)
        return False

    def _member(self, call: _Call) -> Steps[bool]:
        """Key, colon and value; False where there is none."""
        source = self._source
        if (yield from source.ahead(1)) != '"':
            return False
        key = yield from self._text()
        if self._bare and key not in _KEYS_OF_BARE:
            call.no_call = True
            return False
        yield from source.skip_space()
        if (yield from source.ahead(1)) != ":":
            return False
        source.take(1)
        yield from source.skip_space()
        first = yield from source.ahead(1)
        if key == "name" and first == '"' and not call.name:
            # Half a name is none: the end of the text may have cut it.
            call.name = (yield from self._text()) or ""
            if not self._bare or call.has_arguments:
                self._begin(call)
        elif key == "id" and first == '"' and not call.begun:
            call.id = (yield from self._text()) or None
        elif key in _ARGUMENT_KEYS and not call.has_arguments and first:
            call.has_arguments = True
            self._begin(call)
            sink: Sink = self._out.arguments if call.begun else call.early.append
            yield from arguments(source, sink, self._stop)
        else:
            yield from json_text.value(source, _ignore, self._stop)
        return True

    def _text(self) -> Steps[str | None]:
        """A string's text; None when it is not complete."""
        parts: list[str] = []
        complete = yield from json_text.unquoted(self._source, parts.append)
        return "".join(parts) if complete else None

    def _is_call(self, call: _Call, closed: bool) -> bool:
        return not self._bare or call.has_arguments or (closed and call.name in self._known)

    def _begin(self, call: _Call) -> None:
        if call.begun or not call.name:
            return
        call.begun = True
        self._source.release()
        self._out.begin(call.name, call.id)
        for text in call.early:
            self._out.arguments(text)
        call.early.clear()


def arguments(source: Source, sink: Sink, stop: str = "") -> Steps[bool]:
    """The value of a call's arguments; returns whether it was complete."""
    first = yield from source.ahead(1)
    if first == '"':
        return (yield from json_text.unquoted(source, sink))
    if first and first in "{[":
        return (yield from json_text.value(source, sink, stop))
    scalar: list[str] = []
    complete = yield from json_text.value(source, scalar.append, stop)
    text = "".join(scalar)
    if text != "null":
        sink(text)
    return complete


def close(source: Source, out: Emitter, closer: str) -> Steps[None]:
    """What follows a call's arguments: brackets too many, white space and `closer`, or its beginning where the output
    was cut: all no text. Anything else is given back, with what was marked before it."""
    source.mark()
    yield from source.span(_BRACKETS, _ignore)
    accepted = yield from source.accept(closer)
    given_back = source.release()
    if not accepted:
        out.text(given_back)


def _ignore(text: str) -> None:
    """Drops text."""
