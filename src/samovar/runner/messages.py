"""What the engine process and its client say to each other: tagged msgpack, one message a frame. No pickle."""

from __future__ import annotations

import msgspec

from samovar.base.ids import RequestId
from samovar.core.events import ErrorInfo, Output, Verdict
from samovar.core.ports import EngineInfo, PrefixMatch
from samovar.core.request import Request
from samovar.core.stats import CacheReport, EngineStats
from samovar.policy.hints import Hint, HintAnswer
from samovar.runner.config import EngineProcessConfig


class Launch(msgspec.Struct, frozen=True):
    """The one line of JSON on the process's stdin."""

    address: str
    """Where the client's ZeroMQ pair is bound."""
    config: EngineProcessConfig


class SubmitRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answered by a verdict, at once."""

    request: Request


class FinishRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    request_id: RequestId
    num_tokens: int


class GetStats(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answered by `Stats`; answers come in the order of the questions."""


class MatchPrefix(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answered by `Matched`, in order, at once."""

    keys: bytes
    """Of the prompt's full blocks, 16 bytes each."""
    num_tokens: int


class KVHint(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Hints on a session; answered by `Hinted`, in order, at once."""

    tenant: str
    session_id: str
    actions: tuple[Hint, ...]


class TurnOutcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How an answer ended, once its text was read. Not answered."""

    request_id: RequestId
    reason: str
    tools: tuple[str, ...]


class GetCacheReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answered by `CacheReported`, in order."""


class Check(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Recompute the core's invariants; answered by `Checked`, in order."""


class Shutdown(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End now; what runs is given up."""


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A line about the start, for whoever waits."""

    text: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    info: EngineInfo


class Verdicts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    verdicts: tuple[Verdict, ...]


class Outputs(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Everything one step gave."""

    outputs: tuple[Output, ...]


class Stats(msgspec.Struct, frozen=True, array_like=True, tag=True):
    stats: EngineStats


class Matched(msgspec.Struct, frozen=True, array_like=True, tag=True):
    match: PrefixMatch


class Hinted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One answer per action, in their order."""

    answers: tuple[HintAnswer, ...]


class CacheReported(msgspec.Struct, frozen=True, array_like=True, tag=True):
    report: CacheReport


class Checked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`violation` is None when every invariant holds."""

    violation: str | None = None


class Fatal(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process ends after this message."""

    error: ErrorInfo


ToEngine = (
    SubmitRequest | FinishRequest | GetStats | MatchPrefix | KVHint | TurnOutcome | GetCacheReport | Check | Shutdown
)
FromEngine = Progress | Ready | Verdicts | Outputs | Stats | Matched | Hinted | CacheReported | Checked | Fatal
