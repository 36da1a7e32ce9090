"""What is common to policies that only order leaves: they learn nothing from turns and take no hints."""

from __future__ import annotations

from typing import ClassVar

from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.retention import Outlook, TurnEnd, TurnStart


class OrderOnly:
    """A `RetentionPolicy` but for `name`, `sample` and `value`."""

    __slots__ = ()

    why_no_hints: ClassVar[str] = "the retention policy takes no hints"

    def turn_started(self, turn: TurnStart, now: float) -> None: ...

    def turn_ended(self, turn: TurnEnd, now: float) -> None: ...

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None: ...

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        return HintAnswer(hint.kind, "ignored", self.why_no_hints)

    def outlook(self, stream: str, now: float) -> Outlook:
        return Outlook()
