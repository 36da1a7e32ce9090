"""The events of one output as a parser finds them, and what of its white space is text at all.

White space that stands alone before, between or after calls is layout. The same holds for the one separator that a
family's templates put between text and the first call (`joint`): were it text, the next prompt would have it twice.
"""

from __future__ import annotations

from samovar.text.answer import AnswerEvent, CallArguments, CallBegin, CallEnd, TextDelta


class Emitter:
    """Calls end before the next begins and before text goes on: the parser sees to it."""

    def __init__(self, joint: str = "") -> None:
        """`joint` is at most one character."""
        self._joint = joint
        self._events: list[AnswerEvent] = []
        self._text: list[str] = []
        self._arguments: list[str] = []
        self._index = -1
        # White space that may turn out to be layout.
        self._held: list[str] = []
        self._blank = True

    def text(self, text: str) -> None:
        if not text:
            return
        self._held.append(text)
        if self._blank and text.isspace():
            return
        self._blank = False
        text = "".join(self._held)
        self._held.clear()
        if self._joint and text.endswith(self._joint):
            self._held.append(self._joint)
            text = text[: -len(self._joint)]
        self._text.append(text)

    def begin(self, name: str, call_id: str | None = None) -> None:
        self._held.clear()
        self._blank = True
        self._flush()
        self._index += 1
        self._events.append(CallBegin(self._index, name, call_id))

    def arguments(self, text: str) -> None:
        self._arguments.append(text)

    def end(self) -> None:
        self._flush()
        self._events.append(CallEnd(self._index))

    def finish(self) -> None:
        """What is held is text, if there is other text beside it or nothing else at all."""
        if not self._blank or self._index < 0:
            self._text.extend(self._held)
        self._held.clear()

    def drain(self) -> list[AnswerEvent]:
        """The events since the last time, adjacent deltas of one kind joined."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        # At most one of the two has something: text ends before a call begins.
        if text := "".join(self._text):
            self._events.append(TextDelta(text))
        if text := "".join(self._arguments):
            self._events.append(CallArguments(self._index, text))
        self._text.clear()
        self._arguments.clear()
