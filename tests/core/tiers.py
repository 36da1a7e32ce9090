"""Tiers and policies for tests: everything of the ports that a test does not care about."""

from __future__ import annotations

from samovar.core.plan import Move, TransferDone
from samovar.core.ports import Reserved, TierMatch, TierShare
from samovar.policy.hints import HintAnswer
from samovar.policy.retention import Outlook


class QuietPolicy:
    """Orders by `value`, which a test gives, and hears nothing."""

    name = "quiet"
    sample = 16

    def turn_started(self, turn, now: float) -> None:
        pass

    def turn_ended(self, turn, now: float) -> None:
        pass

    def outcome(self, stream: str, reason: str, tools, now: float) -> None:
        pass

    def hinted(self, stream: str, hint, now: float) -> HintAnswer:
        return HintAnswer(hint.kind, "applied")

    def outlook(self, stream: str, now: float) -> Outlook:
        return Outlook()


class EmptyTier:
    """Takes every block it is offered and has none."""

    wake_at: float | None = None

    def lookup(self, keys, now: float) -> TierMatch:
        return TierMatch()

    def load(self, transfer_id, keys, now: float) -> Reserved:
        return Reserved(tuple(range(len(keys))), (0,) * len(keys))

    def store(self, transfer_id, keys, parent, stream, now: float):
        wanted = tuple(self.offers(keys))
        return wanted, Reserved(wanted, (0,) * len(wanted))

    def offers(self, keys) -> list[int]:
        return list(range(len(keys)))

    def moves(self, now: float) -> list[Move]:
        return []

    def transferred(self, done: TransferDone, now: float) -> None:
        pass

    def restore_s(self, key: bytes) -> float | None:
        return None

    def wanted(self, keys, now: float) -> None:
        pass

    def turn_ended(self, stream: str, keys, *, keep: bool, now: float) -> None:
        pass

    def distrust(self, keys, now: float) -> None:
        pass

    def report(self):
        return ()

    def blocks_of(self, keys) -> dict[str, int]:
        return {}

    def check(self) -> None:
        pass


class KeepingTier(EmptyTier):
    """Has what is in `contents`; a test puts the oracle runner's there."""

    tier = "host"

    def __init__(self, seconds: float = 0.1) -> None:
        self.contents: dict[bytes, object] = {}
        self.seconds = seconds

    def held(self, keys) -> int:
        held = 0
        while held < len(keys) and keys[held] in self.contents:
            held += 1
        return held

    def lookup(self, keys, now: float) -> TierMatch:
        held = self.held(keys)
        return TierMatch((TierShare(self.tier, held, self.seconds),)) if held else TierMatch()
