"""Stop strings: finds the first one in text that arrives in pieces, holding back only what may be its beginning.

"First" is the match that is complete first; of two that end together, the longer. That is known the moment the text
is there, so the result does not depend on how the text is cut, and generation can end at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from samovar.base.errors import InvalidField


class StopMatcher:
    """One per output text. Work is linear in the text, times the number of stop strings, however they overlap."""

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        """Raises InvalidField for an empty stop string. `include_stop`: the text emitted ends with the stop string."""
        if any(not stop for stop in stops):
            raise InvalidField("stop: holds an empty string, which would match everywhere", param="stop")
        self._stops = tuple(dict.fromkeys(stops))
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._firsts = tuple({stop[0] for stop in self._stops})
        # Per stop string, how many of its characters the text ends with.
        self._matched = [0] * len(self._stops)
        self._held = ""
        self._include_stop = include_stop
        self._stopped: str | None = None

    @property
    def stopped(self) -> str | None:
        """The stop string that was found."""
        return self._stopped

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that is now certain, and the stop string once one is complete. What follows it is dropped, here
        and in later pushes."""
        if self._stopped is not None:
            return "", self._stopped
        if not self._held and not any(first in text for first in self._firsts):
            return text, None
        for at, char in enumerate(text):
            stop = self._advance(char)
            if stop is not None:
                self._stopped = stop
                seen = self._held + text[: at + 1]
                self._held = ""
                return seen if self._include_stop else seen[: len(seen) - len(stop)], stop
        seen = self._held + text
        keep = max(self._matched)
        self._held = seen[len(seen) - keep :]
        return seen[: len(seen) - keep], None

    def flush(self) -> str:
        """What was held back, at the end of a text without a stop string."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._stops)
        return held

    def _advance(self, char: str) -> str | None:
        """Takes one character; the longest stop string that is complete with it."""
        found: str | None = None
        matched = self._matched
        for index, stop in enumerate(self._stops):
            length, borders = matched[index], self._borders[index]
            while length and stop[length] != char:
                length = borders[length - 1]
            if stop[length] == char:
                length += 1
            if length == len(stop):
                if found is None or len(stop) > len(found):
                    found = stop
                length = borders[length - 1]
            matched[index] = length
        return found


def _borders(stop: str) -> tuple[int, ...]:
    """Knuth-Morris-Pratt: for each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(stop)
    length = 0
    for at in range(1, len(stop)):
        while length and stop[at] != stop[length]:
            length = borders[length - 1]
        if stop[at] == stop[length]:
            length += 1
        borders[at] = length
    return tuple(borders)
