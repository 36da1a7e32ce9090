"""Where a prompt leaves the one that its session asked with before: the first token, and the part it stands in."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from samovar.base.keys import KEY_BYTES, TOKEN_BYTES
from samovar.text.turns.bounded import Bounded

LAST_PROMPTS_BYTES = 64 << 20
_STRIDE = 4096
"""Bytes compared at once, to find the first that differs."""

Part = Literal["system", "tools", "messages"]


@dataclass(frozen=True, slots=True)
class Outline:
    """What a prompt was made of."""

    tools: bytes
    """Digest of the tools it shows."""
    messages: bytes
    """Digest after digest, one for each message and all before it, 16 bytes each."""
    num_systems: int
    """System messages at the head."""


@dataclass(frozen=True, slots=True)
class Departure:
    token: int
    message: int | None
    """Counted in the conversation as it was rendered; None when no message differs."""
    part: Part


@dataclass(frozen=True, slots=True)
class _Last:
    packed: bytes
    outline: Outline


class LastPrompts:
    """The last prompt of each session, bounded in bytes. Safe to use from several threads."""

    def __init__(self, max_bytes: int = LAST_PROMPTS_BYTES) -> None:
        self._last: Bounded[_Last] = Bounded(max_bytes)

    def follow(self, session: Hashable, packed: bytes, outline: Outline) -> Departure | None:
        """Takes the session's next prompt. None for its first one, and when it begins with all of the last one, or
        the last one with all of it."""
        last = self._last.get(session)
        self._last.put(session, _Last(packed, outline), len(packed) + len(outline.messages))
        if last is None:
            return None
        at = _first_difference(last.packed, packed)
        if at is None:
            return None
        message = _first_difference(last.outline.messages, outline.messages)
        if message is not None:
            message //= KEY_BYTES
        return Departure(at // TOKEN_BYTES, message, _part(last.outline, outline, message))


def _part(last: Outline, now: Outline, message: int | None) -> Part:
    """Tools stand before the messages of most templates, together with the system's."""
    if last.tools != now.tools:
        return "tools"
    if message is not None and message < max(last.num_systems, now.num_systems):
        return "system"
    return "messages"


def _first_difference(old: bytes, new: bytes) -> int | None:
    """None when one begins with the other."""
    length = min(len(old), len(new))
    for begin in range(0, length, _STRIDE):
        end = min(begin + _STRIDE, length)
        if old[begin:end] != new[begin:end]:
            return next(at for at in range(begin, end) if old[at] != new[at])
    return None
