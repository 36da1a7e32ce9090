"""The text of one answer as its tokens arrive: detokenizer and stop strings together, with the count of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from samovar.text.detokenizer import IncrementalDetokenizer
from samovar.text.stop import StopMatcher


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What some tokens added."""

    text: str
    """Final text, "" while something is held back."""
    num_tokens: int
    """How many of the tokens pushed belong to the answer: all, or up to and including the one that completed a stop
    string."""
    stop: str | None = None
    """The stop string that ended the answer."""


class OutputText:
    """Owns its detokenizer and matcher. `min_tokens`: no stop string counts that begins in the text of the first
    `min_tokens` tokens."""

    def __init__(self, detokenizer: IncrementalDetokenizer, matcher: StopMatcher, min_tokens: int = 0) -> None:
        self._detokenizer = detokenizer
        self._matcher = matcher
        self._min_tokens = min_tokens
        self._num_tokens = 0

    def push(self, ids: Iterable[int]) -> TextPiece:
        """Token by token, since the token that completes a stop string is the last one of the answer."""
        emitted: list[str] = []
        taken = 0
        for token_id in ids:
            if self._matcher.stopped is not None:
                break
            taken += 1
            self._num_tokens += 1
            text = self._detokenizer.push((token_id,))
            if self._num_tokens <= self._min_tokens:
                emitted.append(text)
            elif text:
                emitted.append(self._matcher.push(text)[0])
        return TextPiece("".join(emitted), taken, self._matcher.stopped)

    def finish(self) -> TextPiece:
        """The rest, when generation ended. It may still complete a stop string: half a character is U+FFFD now."""
        if self._matcher.stopped is not None:
            return TextPiece("", 0, self._matcher.stopped)
        text, stop = self._matcher.push(self._detokenizer.flush())
        return TextPiece(text if stop is not None else text + self._matcher.flush(), 0, stop)
