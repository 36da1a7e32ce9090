"""The log of every call into a core with its answers, and the proof that a fresh core gives the same ones.

This is what lets a simulator run the production core: whatever a real run did, the same calls do again. A connector's
answers are inputs too, so they are in the log. Reading and writing files is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from samovar.base.errors import ReplayMismatch
from samovar.base.ids import BlockKey, RequestId
from samovar.core.cache_report import Dormant
from samovar.core.calls import (
    Advance,
    Apply,
    Call,
    CoreCall,
    Finish,
    HintSession,
    LogHeader,
    Plan,
    Submit,
    TellOutcome,
    TierCall,
    Transferred,
)
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.events import Output, Verdict
from samovar.core.plan import Gate, StepPlan, StepResult, TransferDone
from samovar.core.ports import Connector, PrefixMatch
from samovar.core.replay_tiers import LoggedConnector, RecordingConnector
from samovar.core.request import Request
from samovar.core.stats import CacheReport, EngineStats
from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.retention import RetentionPolicy

_ENCODER = msgspec.msgpack.Encoder()


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
        self._tiers = RecordingConnector(connector, sink) if connector is not None else None
        self._engine = Engine(config, policy, self._tiers)
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

    @property
    def loading(self) -> Collection[RequestId]:
        return self._engine.loading

    def submit(self, request: Request, now: float) -> Verdict:
        verdict = self._engine.submit(request, now)
        self._sink(Call(Submit(request, now), _ENCODER.encode(verdict)))
        return verdict

    def finish(self, request_id: RequestId, num_tokens: int, now: float) -> None:
        self._engine.finish(request_id, num_tokens, now)
        self._sink(Call(Finish(request_id, num_tokens, now), _ENCODER.encode(None)))

    def plan(self, now: float, gate: Gate | None = None) -> StepPlan | None:
        plan = self._engine.plan(now, gate)
        self._sink(Call(Plan(now, gate), _ENCODER.encode(plan)))
        return plan

    def apply(self, step: int, result: StepResult, now: float) -> list[Output]:
        outputs = self._engine.apply(step, result, now)
        self._sink(Call(Apply(step, result, now), _ENCODER.encode(outputs)))
        return outputs

    def steady_rounds(self, closed_gates: int | None = None) -> int:
        return self._engine.steady_rounds(closed_gates)

    @property
    def quiet_until(self) -> float:
        return self._engine.quiet_until

    def advance(self, rounds: int, tokens: Sequence[tuple[int, ...]], now: float) -> tuple[StepPlan, ...]:
        plans = self._engine.advance(rounds, tokens, now)
        self._sink(Call(Advance(rounds, tuple(tokens), now), _ENCODER.encode(plans)))
        return plans

    def transferred(self, done: Sequence[TransferDone], now: float) -> list[Output]:
        outputs = self._engine.transferred(done, now)
        self._sink(Call(Transferred(tuple(done), now), _ENCODER.encode(outputs)))
        return outputs

    def hint(self, tenant: str, session_id: str, actions: Sequence[Hint], now: float) -> tuple[HintAnswer, ...]:
        answers = self._engine.hint(tenant, session_id, actions, now)
        self._sink(Call(HintSession(tenant, session_id, tuple(actions), now), _ENCODER.encode(answers)))
        return answers

    def outcome(self, request_id: RequestId, reason: str, tools: tuple[str, ...], now: float) -> None:
        self._engine.outcome(request_id, reason, tools, now)
        self._sink(Call(TellOutcome(request_id, reason, tools, now), _ENCODER.encode(None)))

    # -- not in the log: they change nothing, so no later answer depends on them -------------------------------------

    def match(self, keys: Sequence[BlockKey], num_tokens: int, now: float) -> PrefixMatch:
        with self._unlogged():
            return self._engine.match(keys, num_tokens, now)

    def cache_report(self, now: float, dormant: Dormant | None = None) -> CacheReport:
        with self._unlogged():
            return self._engine.cache_report(now, dormant)

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def check(self) -> None:
        self._engine.check()

    def _unlogged(self) -> AbstractContextManager[None]:
        return self._tiers.muted() if self._tiers is not None else nullcontext()


def replay(header: LogHeader, calls: Iterable[Call], policy: RetentionPolicy) -> int:
    """Feed a log to a fresh core. Returns the number of plans; raises `ReplayMismatch` at the first other answer."""
    connector = LoggedConnector() if header.has_connector else None
    engine = Engine(header.config, policy, connector)
    plans = 0
    for number, call in enumerate(calls):
        if isinstance(call.call, TierCall):
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


def _perform(engine: Engine, call: CoreCall) -> bytes:
    answer: Any = None
    match call:
        case Submit(request, now):
            answer = engine.submit(request, now)
        case Finish(request_id, num_tokens, now):
            engine.finish(request_id, num_tokens, now)
        case Plan(now, gate):
            answer = engine.plan(now, gate)
        case Apply(step, result, now):
            answer = engine.apply(step, result, now)
        case Advance(rounds, tokens, now):
            answer = engine.advance(rounds, tokens, now)
        case Transferred(done, now):
            answer = engine.transferred(done, now)
        case HintSession(tenant, session_id, actions, now):
            answer = engine.hint(tenant, session_id, actions, now)
        case TellOutcome(request_id, reason, tools, now):
            engine.outcome(request_id, reason, tools, now)
    return _ENCODER.encode(answer)
