"""Drives the core by the wall clock: commands in, plans to the runner, results back, outputs out.

One thread. It sleeps in a poll on both the client's socket and the runner's wake descriptor, so a verdict never waits
for a step to end, and an idle engine uses no CPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
import math
import time

import zmq

from samovar.base.ids import RequestId
from samovar.base.keys import split_keys
from samovar.core.cache_report import Dormant, Recovered
from samovar.core.engine import Engine
from samovar.core.events import ErrorInfo, Output, Verdict
from samovar.core.ports import Runner, Ticket
from samovar.core.replay import Recorder
from samovar.core.request import Request
from samovar.core.stats import CacheReport
from samovar.runner.admission import refusal
from samovar.runner.link import Link
from samovar.runner.messages import (
    CacheReported,
    Check,
    Checked,
    FinishRequest,
    GetCacheReport,
    GetStats,
    Hinted,
    KVHint,
    Matched,
    MatchPrefix,
    Outputs,
    Shutdown,
    Stats,
    SubmitRequest,
    TurnOutcome,
    Verdicts,
)
from samovar.runner.wake import Wake

_WHOLE_OUTPUT = 1 << 31
"""More tokens than any answer has."""


class Driver:
    """Owns none of its parts. `wake` must be notified after every plan and every transfer that the runner ends."""

    def __init__(
        self,
        engine: Engine | Recorder,
        runner: Runner,
        link: Link,
        wake: Wake,
        vocab_size: int,
        clock: Callable[[], float] = time.monotonic,
        measured: Callable[[CacheReport], CacheReport] | None = None,
        recovered: Sequence[Recovered] = (),
    ) -> None:
        """`measured` completes a report with what only the worker's half of the tiers knows. `recovered`: conversations
        that a tier had at the start, the latest first."""
        self._engine = engine
        self._runner = runner
        self._link = link
        self._wake = wake
        self._vocab_size = vocab_size
        self._clock = clock
        self._measured = measured
        self._dormant = Dormant(recovered)
        self._in_flight: deque[tuple[int, Ticket]] = deque()
        self._live: dict[RequestId, None] = {}
        """Requests that were accepted and have not ended. A dictionary keeps their order."""
        self._planned_at = -math.inf
        self._stopping = False

    def stop(self) -> None:
        """Makes `run` return soon; from any thread or a signal handler."""
        self._stopping = True
        self._wake.notify()

    def run(self) -> None:
        """Until `stop` or the client's Shutdown. Any exception is a bug of ours and ends the process."""
        poller = zmq.Poller()
        poller.register(self._link.socket, zmq.POLLIN)
        poller.register(self._wake.fileno(), zmq.POLLIN)
        while not self._stopping:
            # Cleared before looking, so that what happens after the look ends the poll below.
            self._wake.clear()
            moved = self._take_commands()
            moved |= self._collect()
            moved |= self._plan()
            if not moved and not self._stopping:
                poller.poll(self._patience_ms())

    def flush(self, seconds: float, pending: Callable[[], bool]) -> None:
        """After `run`: gives up what runs, then lets transfers end, and begins those that are due, until nothing is
        `pending` or the time is over. Commands are not read any more."""
        deadline = self._clock() + seconds
        for request_id in self._live:
            self._engine.finish(request_id, _WHOLE_OUTPUT, self._clock())
        self._live.clear()
        poller = zmq.Poller()
        poller.register(self._wake.fileno(), zmq.POLLIN)
        while (left_s := deadline - self._clock()) > 0:
            self._wake.clear()
            moved = self._collect()
            moved |= self._plan()
            if not (self._engine.has_work or pending()):
                return
            if not moved:
                left_ms, patience_ms = math.ceil(left_s * 1000), self._patience_ms()
                poller.poll(left_ms if patience_ms is None else min(left_ms, patience_ms))

    def _patience_ms(self) -> int | None:
        """How long to sleep if nothing happens: until the core's next deadline. One that the last look had behind it
        already is not waited for again: only an event can help then."""
        wake_at = self._engine.wake_at
        if wake_at is None or wake_at <= self._planned_at:
            return None
        return max(0, math.ceil((wake_at - self._clock()) * 1000))

    def _take_commands(self) -> bool:
        messages = self._link.waiting()
        verdicts: list[Verdict] = []
        for message in messages:
            match message:
                case SubmitRequest(request=request):
                    verdicts.append(self._submit(request))
                case FinishRequest(request_id=request_id, num_tokens=num_tokens):
                    self._live.pop(request_id, None)
                    self._engine.finish(request_id, num_tokens, self._clock())
                case GetStats():
                    self._link.send(Stats(self._engine.stats()))
                case MatchPrefix(keys=keys, num_tokens=num_tokens):
                    self._link.send(Matched(self._engine.match(split_keys(keys), num_tokens, self._clock())))
                case KVHint(tenant=tenant, session_id=session_id, actions=actions):
                    answers = self._engine.hint(tenant, session_id, actions, self._clock())
                    self._link.send(Hinted(answers))
                case TurnOutcome(request_id=request_id, reason=reason, tools=tools):
                    self._engine.outcome(request_id, reason, tools, self._clock())
                case GetCacheReport():
                    self._link.send(CacheReported(self._report()))
                case Check():
                    self._link.send(Checked(self._violation()))
                case Shutdown():
                    self._stopping = True
        if verdicts:
            self._link.send(Verdicts(tuple(verdicts)))
        return bool(messages)

    def _submit(self, request: Request) -> Verdict:
        error = refusal(request, self._vocab_size)
        if error is not None:
            return Verdict(request.id, ErrorInfo.of(error))
        verdict = self._engine.submit(request, self._clock())
        if verdict.error is None:
            self._live[request.id] = None
            if request.use_prefix_cache:  # else the core does not take it for a turn
                self._dormant.went_on(request.tenant, request.session_id)
        return verdict

    def _report(self) -> CacheReport:
        report = self._engine.cache_report(self._clock(), self._dormant)
        return report if self._measured is None else self._measured(report)

    def _violation(self) -> str | None:
        try:
            self._engine.check()
        except AssertionError as error:
            return str(error) or "an invariant does not hold"
        return None

    def _collect(self) -> bool:
        """Applies the results that are there, in order, and the transfers that ended."""
        moved = False
        while self._in_flight and self._in_flight[0][1].done():
            step, ticket = self._in_flight.popleft()
            self._send(self._engine.apply(step, ticket.result(), self._clock()))
            moved = True
        done = self._runner.transfers()
        if done:
            self._send(self._engine.transferred(done, self._clock()))
            moved = True
        return moved

    def _plan(self) -> bool:
        moved = False
        while (plan := self._engine.plan(self._now())) is not None:
            self._in_flight.append((plan.step, self._runner.submit(plan)))
            moved = True
        return moved

    def _now(self) -> float:
        self._planned_at = self._clock()
        return self._planned_at

    def _send(self, outputs: list[Output]) -> None:
        if outputs:
            self._link.send(Outputs(tuple(outputs)))
            for output in outputs:
                if output.finish is not None:
                    self._live.pop(output.request_id, None)
