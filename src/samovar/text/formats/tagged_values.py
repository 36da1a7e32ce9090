"""Values between tags, without any escapes in them: where such a value ends."""

from __future__ import annotations

from samovar.text.formats.source import Markers, Sink, Source, Steps


class TaggedValue:
    """A value up to a closing tag. The tag counts only before one of `followers`, so that code that contains it is a
    value like any other; `trimmed`: one line break before the tag is layout."""

    def __init__(self, closer: str, followers: tuple[str, ...], *, trimmed: bool = False) -> None:
        self._closer = closer
        self._followers = followers
        self._ends = Markers(*(("\n" + closer,) if trimmed else ()), closer)

    def read(self, source: Source, sink: Sink) -> Steps[bool]:
        """Consumes the value, its tag and white space behind; returns whether it was complete."""
        while end := (yield from source.until(self._ends, sink)):
            tag = source.take(len(end))
            if (yield from source.stands_after_space(*self._followers)):
                yield from source.skip_space()
                return True
            sink(tag)
        return False
