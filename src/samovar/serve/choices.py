"""The generations behind one HTTP request: submitted together, read together, ended whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
import logging
import time

from samovar.base.errors import EngineDead, SamovarError, StepFailed
from samovar.core.events import Output
from samovar.core.ports import Answered, Service
from samovar.core.request import Request
from samovar.policy.hints import HintAnswer

log = logging.getLogger(__name__)

MAX_TOOLS = 8
MAX_TOOL_CHARACTERS = 128
"""Of the calls that the engine is told of. Names are the model's word: it may have made them up."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An output of choice `index`, and when it came (`time.monotonic`)."""

    index: int
    output: Output
    at_s: float


class Choices:
    """Requests whose index is their place in the answer. `close()` ends what still runs; it is idempotent and never
    waits, so it can stand in any `finally`, and before `submit` as well as after."""

    def __init__(self, service: Service, requests: Sequence[Request]) -> None:
        self._service = service
        self._requests = requests
        self._received = [0] * len(requests)
        self._open: set[int] = set()
        self._arrived: list[Arrival] = []
        self._failure: SamovarError | None = None
        self._wake = asyncio.Event()
        self._pumps: list[asyncio.Task[None]] = []
        self.hint_answers: tuple[HintAnswer, ...] = ()
        """To the first request's hints; known once everything is submitted."""

    async def submit(self) -> None:
        """Waits for every verdict. If one is refused, the others are ended and the first refusal is raised."""
        tasks = [asyncio.ensure_future(self._service.submit(request)) for request in self._requests]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await _withdraw(self._service, self._requests, tasks)
            raise
        refusals = [task.exception() for task in tasks]
        refusal = next((error for error in refusals if error is not None), None)
        if refusal is not None:
            await _withdraw(self._service, self._requests, tasks)
            raise refusal
        first = tasks[0].result()
        self.hint_answers = first.hints if isinstance(first, Answered) else ()
        self._open.update(range(len(tasks)))
        self._pumps += [asyncio.create_task(self._pump(at, task.result())) for at, task in enumerate(tasks)]

    async def next(self, timeout_s: float | None = None) -> list[Arrival]:
        """Everything that arrived since the last call, in order; waits for something, [] when the time is up.
        Raises what a stream failed with, once the outputs before it were handed out."""
        if not self._arrived and self._failure is None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return []
        self._wake.clear()
        if not self._arrived and self._failure is not None:
            raise self._failure
        arrived, self._arrived = self._arrived, []
        return arrived

    def finish(self, index: int, num_tokens: int) -> None:
        """Ends one choice, keeping its first `num_tokens` output tokens."""
        if index in self._open:
            self._open.discard(index)
            self._service.finish(self._requests[index].id, num_tokens)
            self._pumps[index].cancel()

    def ended(self, index: int, reason: str, tools: Sequence[str] = ()) -> None:
        """How a choice's answer ended, for the engine: "tool_calls" with the tools that it calls, "stop", "length";
        "abort" or "error" where it has no end of its own."""
        named = tuple(dict.fromkeys(name[:MAX_TOOL_CHARACTERS] for name in tools))[:MAX_TOOLS]
        self._service.outcome(self._requests[index].id, reason, named)

    def fail(self, error: SamovarError) -> None:
        """Makes the reader stop with `error`, from outside."""
        if self._failure is None:
            self._failure = error
        self._wake.set()

    def close(self) -> None:
        for index in sorted(self._open):
            self.finish(index, self._received[index])

    async def _pump(self, index: int, outputs: AsyncIterator[Output]) -> None:
        try:
            async for output in outputs:
                self._received[index] += len(output.token_ids)
                if output.finish is not None:
                    self._open.discard(index)
                self._arrived.append(Arrival(index, output, time.monotonic()))
                self._wake.set()
                if output.finish is not None:
                    return
        except SamovarError as error:
            self.fail(error)
        except Exception:
            log.exception("reading the engine's outputs failed")
            self.fail(StepFailed("The server failed while it read this request's output."))
        else:
            self.fail(EngineDead(self._service.dead or "The engine stopped answering."))


async def _withdraw(
    service: Service, requests: Sequence[Request], tasks: Sequence[asyncio.Future[AsyncIterator[Output]]]
) -> None:
    """Ends every request of a submission that came to nothing, whatever state it is in."""
    for request, task in zip(requests, tasks, strict=True):
        if task.done() and not task.cancelled() and task.exception() is not None:
            continue
        service.finish(request.id, 0)
        task.cancel()
    await asyncio.wait(tasks)
