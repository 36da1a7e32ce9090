"""Text that arrives in pieces, read by generators that `yield` whenever they need more of it.

A parser written so reads like one for a whole text, and its result cannot depend on where the text is cut: every
method here waits until its answer is certain, and answers from the text alone. Only a few characters are ever held:
what was consumed is gone, but for a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
import re
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Yields to wait for more text; returns a T."""
Sink: TypeAlias = Callable[[str], object]
"""Takes text piece by piece, in order."""

SPACE = re.compile(r"[ \t\r\n]+")
MAX_NAME = 256
"""Characters of a name. What is longer is no name, so that prose is not held back while a name's end is awaited."""


class Markers:
    """A fixed set of texts to look for. None is a prefix of another."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.pattern = re.compile("|".join(re.escape(text) for text in texts))
        self._longest = max(len(text) for text in texts)
        self._firsts = re.compile("[" + re.escape("".join({text[0] for text in texts})) + "]")

    def possible_from(self, text: str, at: int) -> int:
        """The first place, not before `at`, where `text` ends with the beginning of a marker; its length if none."""
        at = max(at, len(text) - self._longest + 1)
        while found := self._firsts.search(text, at):
            tail = text[found.start() :]
            if any(marker.startswith(tail) for marker in self.texts):
                return found.start()
            at = found.start() + 1
        return len(text)


class Source:
    """One per text. Methods that return Steps must be run with `yield from`."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._ended = False
        self._marked: list[str] | None = None

    def feed(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """No text follows: waiting is over."""
        self._ended = True

    def mark(self) -> None:
        """From here on (or an earlier mark that was not released) consumed text is kept for `release`."""
        if self._marked is None:
            self._marked = []

    def release(self) -> str:
        """The text consumed since the mark, which ends."""
        text = "".join(self._marked or ())
        self._marked = None
        return text

    def take(self, count: int) -> str:
        """Consumes characters that are known to be there."""
        text = self._text[self._at : self._at + count]
        assert len(text) == count
        self._at += count
        if self._marked is not None:
            self._marked.append(text)
        return text

    def ahead(self, count: int) -> Steps[str]:
        """The next `count` characters, unconsumed; fewer only at the end of the text."""
        while len(self._text) - self._at < count and not self._ended:
            yield
        return self._text[self._at : self._at + count]

    def at(self, *texts: str) -> Steps[str]:
        """Which of these stands here, unconsumed; "" for none. None may be a prefix of another."""
        while True:
            for text in texts:
                if self._text.startswith(text, self._at):
                    return text
            if self._ended or not self._may_begin(texts, self._at):
                return ""
            yield

    def stands(self, *texts: str) -> Steps[bool]:
        """Whether one of these stands here, or begins here where the text ends (it was cut off then)."""
        return bool((yield from self.at(*texts))) or (self._ended and self._may_begin(texts, self._at))

    def stands_after_space(self, *texts: str) -> Steps[bool]:
        """As `stands`, behind white space, of which nothing is consumed either. Behind very much of it: False."""
        while True:
            found = SPACE.match(self._text, self._at, self._at + MAX_NAME)
            at = found.end() if found else self._at
            if at - self._at == MAX_NAME:
                return False
            if any(self._text.startswith(text, at) for text in texts):
                return True
            possible = self._may_begin(texts, at)
            if self._ended or not possible:
                return possible
            yield

    def accept(self, *texts: str) -> Steps[bool]:
        """Consumes one of these, or what there is of it where the text ends. False: neither stands here."""
        if not (yield from self.stands(*texts)):
            return False
        found = yield from self.at(*texts)
        self.take(len(found) or len(self._text) - self._at)
        return True

    def _may_begin(self, texts: tuple[str, ...], at: int) -> bool:
        """Whether the text received so far ends within one of these, that would stand at `at`."""
        rest = self._text[at : at + max(len(text) for text in texts)]
        return any(text.startswith(rest) for text in texts)

    def span(self, pattern: re.Pattern[str], sink: Sink) -> Steps[None]:
        """Consumes all characters from here on that `pattern` matches: one set of characters, repeated."""
        while True:
            found = pattern.match(self._text, self._at)
            if found:
                sink(self.take(found.end() - self._at))
            if self._at < len(self._text) or self._ended:
                return
            yield

    def skip_space(self) -> Steps[None]:
        yield from self.span(SPACE, _nowhere)

    def word(self, pattern: re.Pattern[str], limit: int = MAX_NAME) -> Steps[str]:
        """As `span`, but gives the text, of at most about `limit` characters: "" when there are more."""
        parts: list[str] = []
        length = 0
        while True:
            # Bounded also within one piece, so that the answer depends on the text alone.
            found = pattern.match(self._text, self._at, self._at + limit + 1 - length)
            if found:
                parts.append(self.take(found.end() - self._at))
                length += len(parts[-1])
            if length > limit:
                return ""
            if self._at < len(self._text) or self._ended:
                return "".join(parts)
            yield

    def until(self, markers: Markers, sink: Sink) -> Steps[str]:
        """Consumes everything before the first marker; returns that, unconsumed, or "" at the end of the text."""
        while True:
            found = markers.pattern.search(self._text, self._at)
            if found:
                self._pass(found.start(), sink)
                return found.group()
            self._pass(len(self._text) if self._ended else markers.possible_from(self._text, self._at), sink)
            if self._ended:
                return ""
            yield

    def _pass(self, end: int, sink: Sink) -> None:
        if end > self._at:
            sink(self.take(end - self._at))


def _nowhere(text: str) -> None:
    """Drops text."""
