"""The log of every call into a core with its answers, and the proof that a fresh core gives the same ones.

This is what lets a simulator run the production core: whatever a real run did, the same calls do again. A connector's
answers are inputs too, so they are in the log. Reading and writing files is the caller's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from samovar.base.errors import ReplayMismatch
from samovar.base.ids import BlockKey, RequestId
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.events import Output, Verdict
from samovar.core.plan import Gate, StepPlan, StepResult, TransferDone
from samovar.core.ports import Connector, PrefixMatch, TierMatch
from samovar.core.request import Request
from samovar.core.stats import EngineStats
from samovar.policy.retention import RetentionPolicy

_ENCODER = msgspec.msgpack.Encoder()


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


class Transferred(msgspec.Struct, frozen=True, array_like=True, tag=True):
    done: tuple[TransferDone, ...]
    now: float


class Lookup(msgspec.Struct, frozen=True, array_like=True, tag=True):
    keys: tuple[BlockKey, ...]
    now: float


class Offers(msgspec.Struct, frozen=True, array_like=True, tag=True):
    keys: tuple[BlockKey, ...]
    now: float


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call and its answer, msgpack. A connector's call stands before the call of the core that made it."""

    call: Submit | Finish | Plan | Apply | Transferred | Lookup | Offers
    answer: bytes


class LogHeader(msgspec.Struct, frozen=True):
    """What a fresh core needs; the first record of a log."""

    config: EngineConfig
    policy: str
    has_connector: bool = False


class RecordingConnector:
    """Passes on to a connector and logs what it said."""

    def __init__(self, inner: Connector, sink: Callable[[Call], None]) -> None:
        self._inner = inner
        self._sink = sink

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        match = self._inner.lookup(keys, now)
        self._sink(Call(Lookup(tuple(keys), now), _ENCODER.encode(match)))
        return match

    def offers(self, keys: Sequence[BlockKey], now: float) -> Sequence[int]:
        wanted = self._inner.offers(keys, now)
        self._sink(Call(Offers(tuple(keys), now), _ENCODER.encode(tuple(wanted))))
        return wanted


class Recorder:
    """An engine that hands every call and its answer to `sink`. Same interface as `Engine`."""

    def __init__(
        self,
        config: EngineConfig,
        policy: RetentionPolicy,
        connector: Connector | None = None,
        *,
        sink: Callable[[Call], None],
    ) -> None:
        recording = RecordingConnector(connector, sink) if connector is not None else None
        self._engine = Engine(config, policy, recording)
        self._sink = sink
        self.header = LogHeader(config, policy.name, connector is not None)

    @property
    def config(self) -> EngineConfig:
        return self._engine.config

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    @property
    def wake_at(self) -> float | None:
        return self._engine.wake_at

    def submit(self, request: Request, now: float) -> Verdict:
        verdict = self._engine.submit(request, now)
        self._sink(Call(Submit(request, now), _ENCODER.encode(verdict)))
        return verdict

    def finish(self, request_id: RequestId, num_tokens: int, now: float) -> None:
        self._engine.finish(request_id, num_tokens, now)
        self._sink(Call(Finish(request_id, num_tokens, now), b""))

    def plan(self, now: float, gate: Gate | None = None) -> StepPlan | None:
        plan = self._engine.plan(now, gate)
        self._sink(Call(Plan(now, gate), _ENCODER.encode(plan)))
        return plan

    def apply(self, step: int, result: StepResult, now: float) -> list[Output]:
        outputs = self._engine.apply(step, result, now)
        self._sink(Call(Apply(step, result, now), _ENCODER.encode(outputs)))
        return outputs

    def transferred(self, done: Sequence[TransferDone], now: float) -> list[Output]:
        outputs = self._engine.transferred(done, now)
        self._sink(Call(Transferred(tuple(done), now), _ENCODER.encode(outputs)))
        return outputs

    def match(self, keys: Sequence[BlockKey], num_tokens: int) -> PrefixMatch:
        """Not in the log: it changes nothing, so no later answer depends on it."""
        return self._engine.match(keys, num_tokens)

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def check(self) -> None:
        self._engine.check()


class _LoggedConnector:
    """Gives the answers of a log, and checks that the questions are the same."""

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()

    def _next(self, question: Lookup | Offers) -> bytes:
        call = self.calls.popleft() if self.calls else None
        if call is None or call.call != question:
            raise ReplayMismatch(f"the core asked {question!r}, the log has {call and call.call!r}")
        return call.answer

    def lookup(self, keys: Sequence[BlockKey], now: float) -> TierMatch:
        return msgspec.msgpack.decode(self._next(Lookup(tuple(keys), now)), type=TierMatch)

    def offers(self, keys: Sequence[BlockKey], now: float) -> Sequence[int]:
        return msgspec.msgpack.decode(self._next(Offers(tuple(keys), now)), type=tuple[int, ...])


def replay(header: LogHeader, calls: Iterable[Call], policy: RetentionPolicy) -> int:
    """Feed a log to a fresh core. Returns the number of plans; raises `ReplayMismatch` at the first other answer."""
    connector = _LoggedConnector() if header.has_connector else None
    engine = Engine(header.config, policy, connector)
    plans = 0
    for number, call in enumerate(calls):
        if isinstance(call.call, Lookup | Offers):
            if connector is None:
                raise ReplayMismatch(f"call {number} is a connector's, and the log's header names none")
            connector.calls.append(call)
            continue
        answer = _perform(engine, call.call)
        if answer != call.answer:
            raise ReplayMismatch(f"call {number} ({type(call.call).__name__}): the answer differs from the log's")
        if isinstance(call.call, Plan) and call.answer != _ENCODER.encode(None):
            plans += 1
        if connector is not None and connector.calls:
            raise ReplayMismatch(f"call {number}: the log has connector calls that the core did not make")
    return plans


def _perform(engine: Engine, call: Submit | Finish | Plan | Apply | Transferred | Lookup | Offers) -> bytes:
    answer: Any
    match call:
        case Submit(request, now):
            answer = engine.submit(request, now)
        case Finish(request_id, num_tokens, now):
            engine.finish(request_id, num_tokens, now)
            return b""
        case Plan(now, gate):
            answer = engine.plan(now, gate)
        case Apply(step, result, now):
            answer = engine.apply(step, result, now)
        case Transferred(done, now):
            answer = engine.transferred(done, now)
        case _:
            raise AssertionError(call)
    return _ENCODER.encode(answer)
