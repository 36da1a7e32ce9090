"""Somebody else's retention policy, so that its faults cost misses and nothing else.

Whatever it raises, and any answer of the wrong kind, is told once; from then on the policy is not asked any more, and
blocks go least recently used first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import TypeVar

from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf, Outlook, RetentionPolicy, TurnEnd, TurnStart

T = TypeVar("T")

Told = Callable[[str], None]
"""Gets one sentence that names the policy, the call and the fault. What it raises itself goes to the caller."""
MOST_NAME = 64


class Contained:
    """A `RetentionPolicy` around one that is not trusted."""

    def __init__(self, inner: RetentionPolicy, label: str, told: Told) -> None:
        """`label`: what users call it."""
        self._inner = inner
        self._label = label
        self._told = told
        self._instead: LRU | None = None
        self.sample = max(1, inner.sample)
        plain = inner.name.isprintable() and 0 < len(inner.name) <= MOST_NAME
        self.name = inner.name if plain else label

    @property
    def failed(self) -> bool:
        return self._instead is not None

    def value(self, leaf: Leaf, now: float) -> float:
        return self._call("value", lambda p: p.value(leaf, now), _is_value)

    def turn_started(self, turn: TurnStart, now: float) -> None:
        self._call("turn_started", lambda p: p.turn_started(turn, now))

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        self._call("turn_ended", lambda p: p.turn_ended(turn, now))

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        self._call("outcome", lambda p: p.outcome(stream, reason, tools, now))

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        return self._call("hinted", lambda p: p.hinted(stream, hint, now), _is_answer)

    def outlook(self, stream: str, now: float) -> Outlook:
        return self._call("outlook", lambda p: p.outlook(stream, now), _is_outlook)

    def _call(
        self,
        method: str,
        call: Callable[[RetentionPolicy], T],
        is_right: Callable[[object], bool] = lambda answer: True,
    ) -> T:
        if self._instead is not None:
            return call(self._instead)
        try:
            answer = call(self._inner)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an exit is a fault too
            return self._fails(f"{method} raised {type(error).__name__}: {error}", call)
        return answer if is_right(answer) else self._fails(f"{method} answered {answer!r:.80}", call)

    def _fails(self, how: str, call: Callable[[RetentionPolicy], T]) -> T:
        self._instead = LRU()
        self._told(f"retention policy {self._label!r}: {how}; it is not asked any more, least recently used goes first")
        return call(self._instead)


def _is_value(answer: object) -> bool:
    return isinstance(answer, int | float) and not isnan(answer)


def _is_answer(answer: object) -> bool:
    return isinstance(answer, HintAnswer) and isinstance(answer.reason, str)


def _is_outlook(answer: object) -> bool:
    if not isinstance(answer, Outlook) or not isinstance(answer.why, str):
        return False
    return all(value is None or _is_value(value) for value in (answer.return_in_s, answer.until_s))
