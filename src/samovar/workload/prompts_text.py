"""Prompts as text, for servers that take no token ids: one common English word stands for each token.

Byte-pair tokenizers split text before a space and have these words, with the space, as one token; so a text repeats
where its words repeat, and has about as many tokens as words. How many exactly, the server says.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from samovar.workload.prompts import TokenRange, Tokens

_TEXT = """
the of and to in is that it was for on are as with his they at be this have from or one had by but not what
all were we when your can said there use an each which she do how their if will up other about out many then
them these so some her would make like him into time has look two more write go see number no way could people
my than first water been call who its now find long down day did get come made may part over new sound take
only little work know place year live me back give most very after thing our just name good sentence man think
say great where help through much before line right too mean old any same tell boy follow came want show also
around form three small set put end does another well large must big even such because turn here why ask went
men read need land different home us move try kind hand picture again change off play spell air away animal
house point page letter mother answer found study still learn should world
"""
WORDS = tuple(_TEXT.split())

Role = Literal["system", "user", "assistant"]
Message = tuple[Role, Tokens]


class Words:
    """Units of text: the first are words, later ones pieces of the answers that a server gave."""

    def __init__(self) -> None:
        self._pieces = [f" {word}" for word in WORDS]

    @property
    def range(self) -> TokenRange:
        return TokenRange(0, len(WORDS))

    def add(self, text: str, count: int) -> Tokens:
        """`count` new units that together read `text`: an answer as part of later prompts."""
        bounds = [len(text) * at // count for at in range(count + 1)] if count else []
        first = len(self._pieces)
        self._pieces.extend(text[a:b] for a, b in pairwise(bounds))
        return np.arange(first, len(self._pieces), dtype=np.int32)

    def text(self, units: Iterable[int] | NDArray[np.int32]) -> str:
        pieces = self._pieces
        return "".join([pieces[unit] for unit in (units.tolist() if isinstance(units, np.ndarray) else units)])


class Conversation:
    """Splits the prompts of one stream into messages, so that what two prompts share is the same messages."""

    def __init__(self, system_tokens: int) -> None:
        self._system = system_tokens
        self._last: Tokens | None = None
        self._parts: list[tuple[Role, int]] = []
        """Role and end of each message, in units."""

    def messages(self, units: Tokens, answer_tokens: int, block_tokens: int) -> list[Message]:
        """`answer_tokens`: length of the answer to the prompt before, which opens what is new here."""
        if self._last is None:
            kept, self._parts = 0, []
        else:
            kept = _common(self._last, units)
            self._parts = _cut(self._parts, kept)
        goes_on = self._last is not None and kept > len(self._last) - block_tokens
        if not self._parts:
            if self._system and len(units) > self._system:
                self._parts = [("system", self._system)]
        elif goes_on and answer_tokens and len(units) > kept + answer_tokens:
            self._parts.append(("assistant", kept + answer_tokens))
        if not self._parts or (self._parts[-1][0] != "user" and self._parts[-1][1] < len(units)):
            self._parts.append(("user", len(units)))
        else:  # a message that was cut goes on; two of one role in a row are more than many templates bear
            self._parts[-1] = ("user", len(units))
        self._last = units
        starts = [0, *(end for _, end in self._parts)]
        return [(role, units[start:end]) for (role, end), start in zip(self._parts, starts, strict=False)]


def _common(a: Tokens, b: Tokens) -> int:
    size = min(len(a), len(b))
    differing = np.flatnonzero(a[:size] != b[:size])
    return int(differing[0]) if len(differing) else size


def _cut(parts: list[tuple[Role, int]], length: int) -> list[tuple[Role, int]]:
    kept: list[tuple[Role, int]] = []
    for role, end in parts:
        if end >= length:
            return [*kept, (role, length)] if length > (kept[-1][1] if kept else 0) else kept
        kept.append((role, end))
    return kept
