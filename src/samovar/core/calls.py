"""The calls into a core, as its log holds them: each with its arguments and its answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from samovar.base.ids import RequestId
from samovar.core.config import EngineConfig
from samovar.core.plan import Gate, StepResult, TransferDone
from samovar.core.request import Request
from samovar.policy.hints import Hint


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    request: Request
    now: float


class Finish(msgspec.Struct, frozen=True, array_like=True, tag=True):
    request_id: RequestId
    num_tokens: int
    now: float


class Plan(msgspec.Struct, frozen=True, array_like=True, tag=True):
    now: float
    gate: Gate | None


class Apply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    step: int
    result: StepResult
    now: float


class Advance(msgspec.Struct, frozen=True, array_like=True, tag=True):
    rounds: int
    tokens: tuple[tuple[int, ...], ...]
    now: float


class Transferred(msgspec.Struct, frozen=True, array_like=True, tag=True):
    done: tuple[TransferDone, ...]
    now: float


class HintSession(msgspec.Struct, frozen=True, array_like=True, tag=True):
    tenant: str
    session_id: str
    actions: tuple[Hint, ...]
    now: float


class TellOutcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    request_id: RequestId
    reason: str
    tools: tuple[str, ...]
    now: float


TierMethod = Literal[
    "lookup", "load", "store", "moves", "transferred", "restore_s", "wanted", "turn_ended", "distrust", "report"
]  # fmt: skip


class TierCall(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A question of the core to its connector. The arguments, which may be thousands of keys, are only ever compared:
    a digest of them is enough, and keeps the log small."""

    method: TierMethod
    question: bytes
    """`base.keys.digest` of the encoded arguments."""


CoreCall = Submit | Finish | Plan | Apply | Advance | Transferred | HintSession | TellOutcome


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call and its answer, msgpack. A connector's call stands before the call of the core that made it."""

    call: CoreCall | TierCall
    answer: bytes


class LogHeader(msgspec.Struct, frozen=True):
    """What a fresh core needs; the first record of a log."""

    config: EngineConfig
    policy: str
    has_connector: bool = False
    retention_ttl_s: float | None = None
    """Of policy "ttl", when it was given."""
