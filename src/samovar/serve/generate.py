"""The way of a generation request through the server, the same for every API: body, job, verdicts, answer.

Whatever happens on the way (an error, a refusal, a client that leaves, a cancelled task), everything that was started
is ended: each part puts its own ending on one `ExitStack`, which the streamed answer takes over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samovar.base.errors import SamovarError
from samovar.serve.choices import Choices
from samovar.serve.disconnect import ClientGone, Disconnect
from samovar.serve.job import Job
from samovar.serve.json_output import JsonResponse
from samovar.serve.preparing import Caller
from samovar.serve.reading import Format, Reading, stream_answer, whole_answer
from samovar.serve.request_ids import client_id
from samovar.serve.state import ServerState

Prepare = Callable[[ServerState, Caller, bytes], Job]

NOBODY_LEFT = 499
"""Status of an answer that cannot arrive, for the access log; nginx's number for it."""


async def generate(
    state: ServerState, request: Request, prepare: Prepare, make_format: Callable[[Job], Format]
) -> Response:
    """Raises the SamovarError to answer with; after that nothing of the request is left running."""
    arrived_s = time.monotonic()
    caller = Caller(state.auth.tenant(request.headers), request.headers, client_id(request.scope))
    state.admit()
    raw = await request.body()
    gone = Disconnect(request.receive)
    with ExitStack() as stack:
        stack.callback(gone.close)
        ending = _Ending()
        stack.enter_context(state.drain.request(ending.fail))
        try:
            job = await gone.race(state.workers.run(len(raw), partial(prepare, state, caller, raw)))
            choices = await gone.race(Choices.submit(state.service, job.requests))
            reading = Reading(job, choices, state.tokenizer, state.metrics, arrived_s)
            stack.callback(reading.close)
            ending.follow(choices)
            format = make_format(job)
            if job.stream:
                events = stream_answer(reading, job, format, state.config.keepalive_s)
                return EventStream(events, gone, state, stack.pop_all())
            return JsonResponse(await gone.race(whole_answer(reading, job, format)))
        except ClientGone:
            state.metrics.disconnects.inc()
            return Response(status_code=NOBODY_LEFT)


class EventStream(Response):
    """Server-sent events. Owns `stack`, and with it everything the request started."""

    def __init__(self, events: AsyncIterator[bytes], gone: Disconnect, state: ServerState, stack: ExitStack) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-cache", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._events = events
        self._gone = gone
        self._metrics = state.metrics
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stack:
            try:
                await self._gone.race(self._write(send))
            except (ClientGone, OSError):
                self._metrics.disconnects.inc()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Ending:
    """Where the news goes that a request must end early: to its choices, once it has some."""

    def __init__(self) -> None:
        self._choices: Choices | None = None
        self._error: SamovarError | None = None

    def fail(self, error: SamovarError) -> None:
        self._error = error
        if self._choices is not None:
            self._choices.fail(error)

    def follow(self, choices: Choices) -> None:
        self._choices = choices
        if self._error is not None:
            choices.fail(self._error)
