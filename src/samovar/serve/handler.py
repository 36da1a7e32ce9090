"""The way of a generation request through the server, the same for every API: body, job, verdicts, answer.

Whatever happens on the way (an error, a refusal, a client that leaves, a cancelled task), everything that was started
is ended: each part puts its own ending on one `ExitStack`, which the streamed answer takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samovar.base.errors import SamovarError
from samovar.serve.choices import Choices
from samovar.serve.disconnect import ClientGone, Disconnect, News, unless
from samovar.serve.drain import Fail
from samovar.serve.job import Job
from samovar.serve.json_output import JsonResponse
from samovar.serve.preparing import Caller
from samovar.serve.reading import Format, Reading, stream_answer, whole_answer
from samovar.serve.request_ids import client_id
from samovar.serve.state import ServerState

Prepare = Callable[[ServerState, Caller, bytes], Job]


async def generate(
    state: ServerState,
    request: Request,
    prepare: Prepare,
    make_format: Callable[[Job], Format],
    opened: Callable[[Fail], None] = lambda fail: None,
) -> Response:
    """Raises the SamovarError to answer with, or ClientGone; after that nothing of the request is left running.
    `opened` is given what ends the request early, with an error to say why."""
    arrived_s = time.monotonic()
    caller = Caller(state.auth.tenant(request.headers), request.headers, client_id(request.scope))
    state.admit()
    with ExitStack() as stack:
        # From here on a shutdown waits for this request: what it was admitted for may take long to arrive.
        cut_off = CutOff()
        opened(cut_off.fail)
        stack.enter_context(state.drain.request(cut_off.fail))
        gone, job = await _read(state, request, partial(prepare, state, caller), cut_off)
        stack.callback(gone.close)
        choices = Choices(state.service, job.requests)
        stack.callback(choices.close)
        await unless((gone.news, cut_off.news), choices.submit())
        job = job.accepted(choices.hint_answers)
        reading = Reading(
            job, choices, state.tokenizer, state.metrics, state.workers, arrived_s, cache_log=state.config.cache_log
        )
        stack.callback(reading.close)
        cut_off.follow(choices)
        format = make_format(job)
        if job.stream:
            events = stream_answer(reading, format, state.config.keepalive_s)
            return EventStream(events, gone, state, stack.pop_all())
        return JsonResponse(await unless((gone.news,), whole_answer(reading, job, format)))


async def _read(
    state: ServerState, request: Request, prepare: Callable[[bytes], Job], cut_off: CutOff
) -> tuple[Disconnect, Job]:
    """The body as a job, and the watch over the client from then on. The body's bytes are let go here."""
    with state.uploads.begin(request) as upload, ExitStack() as on_error:
        raw = await unless((cut_off.news,), upload.read())
        gone = Disconnect(request.receive)
        on_error.callback(gone.close)
        job = await unless((gone.news, cut_off.news), state.workers.thread(partial(prepare, raw)))
        on_error.pop_all()
        return gone, job


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
                await unless((self._gone.news,), self._write(send))
            except (ClientGone, OSError):
                self._metrics.disconnects.inc()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class CutOff:
    """The server's word that a request must end early. Until the request has choices it is news; then the choices fail
    with it, so that a stream can still say why it ends."""

    def __init__(self) -> None:
        self.news: News = asyncio.get_running_loop().create_future()
        self._choices: Choices | None = None

    def fail(self, error: SamovarError) -> None:
        if not self.news.done():
            self.news.set_result(error)
        if self._choices is not None:
            self._choices.fail(error)

    def follow(self, choices: Choices) -> None:
        self._choices = choices
        if self.news.done():
            error = self.news.result()
            assert isinstance(error, SamovarError)
            choices.fail(error)
