"""The front end's handle on an engine in a process of its own: `core.ports.Service` over ZeroMQ. Torch-free.

However the engine ends, every open request gets an ERROR output at once and later submissions raise EngineDead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
import contextlib
from dataclasses import dataclass, field
import logging
from pathlib import Path
import shutil
import tempfile
from typing import Any, TypeVar
from weakref import ref

import msgspec
import zmq
import zmq.asyncio

from samovar.base.errors import ConfigError, EngineDead, SamovarError
from samovar.base.ids import RequestId
from samovar.core.events import ErrorInfo, FinishReason, Output, Verdict
from samovar.core.ports import EngineInfo, PrefixMatch
from samovar.core.request import Request
from samovar.core.stats import CacheReport, EngineStats
from samovar.policy.hints import Hint, HintAnswer
from samovar.runner.child import Child, describe_exit
from samovar.runner.config import EngineProcessConfig
from samovar.runner.messages import (
    CacheReported,
    Check,
    Checked,
    Fatal,
    FinishRequest,
    FromEngine,
    GetCacheReport,
    GetStats,
    Hinted,
    KVHint,
    Launch,
    Matched,
    MatchPrefix,
    Outputs,
    Progress,
    Ready,
    Shutdown,
    Stats,
    SubmitRequest,
    ToEngine,
    TurnOutcome,
    Verdicts,
)
from samovar.runner.stream import OutputStream

log = logging.getLogger(__name__)

PROCESS_MODULE = "samovar.runner.process"
CLOSE_GRACE_S = 5.0
_LONGEST_SOCKET_PATH = 100
"""Unix socket paths end at 107 bytes on Linux, 103 on macOS."""

T = TypeVar("T")


@dataclass(slots=True)
class _Open:
    """A request that has had no last output. The stream belongs to its consumer: when that lets go of it, it is
    collected and gives the request up."""

    stream: ref[OutputStream]
    verdict: asyncio.Future[ErrorInfo | None]


@dataclass(slots=True)
class _Wire:
    """The bound end of the pair, in a folder only this user can enter."""

    folder: Path
    context: zmq.asyncio.Context
    socket: zmq.asyncio.Socket
    address: str
    encoder: msgspec.msgpack.Encoder = field(default_factory=msgspec.msgpack.Encoder)
    decoder: msgspec.msgpack.Decoder[FromEngine] = field(default_factory=lambda: msgspec.msgpack.Decoder(FromEngine))

    @staticmethod
    def bind() -> _Wire:
        folder = Path(tempfile.mkdtemp(prefix="samovar-"))
        path = folder / "engine"
        if len(str(path)) > _LONGEST_SOCKET_PATH:
            folder.rmdir()
            raise ConfigError(
                f"the socket path {path} has {len(str(path))} characters, the system allows {_LONGEST_SOCKET_PATH}: "
                "point TMPDIR at a shorter folder"
            )
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.PAIR)
        socket.set_hwm(0)
        socket.bind(f"ipc://{path}")
        return _Wire(folder, context, socket, f"ipc://{path}")

    def close(self) -> None:
        self.context.destroy(linger=0)
        shutil.rmtree(self.folder, ignore_errors=True)


class EngineClient:
    """Made by `start`, ended by `close`; every method belongs to the loop that started it."""

    def __init__(self, wire: _Wire, child: Child, on_progress: Callable[[str], None]) -> None:
        self._wire = wire
        self._child = child
        self._on_progress = on_progress
        self._loop = loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[EngineInfo] = loop.create_future()
        self._fatal: asyncio.Future[ErrorInfo] = loop.create_future()
        self._died: asyncio.Future[str] = loop.create_future()
        self._open: dict[RequestId, _Open] = {}
        self._stats: deque[asyncio.Future[EngineStats]] = deque()
        self._matches: deque[asyncio.Future[PrefixMatch]] = deque()
        self._hints: deque[asyncio.Future[tuple[HintAnswer, ...]]] = deque()
        self._reports: deque[asyncio.Future[CacheReport]] = deque()
        self._checks: deque[asyncio.Future[str | None]] = deque()
        self._closing: asyncio.Task[None] | None = None
        self._reader = loop.create_task(self._read())
        self._watcher = loop.create_task(self._watch())

    @classmethod
    async def start(
        cls,
        config: EngineProcessConfig,
        on_progress: Callable[[str], None] | None = None,
        module: str | None = None,
    ) -> EngineClient:
        """Returns once the engine can take requests. What the child refused to start with is raised here as the same
        class; a child that ends without a word raises EngineDead. `module`: what the child runs, if not
        `PROCESS_MODULE`."""
        wire = _Wire.bind()
        try:
            child = Child(module or PROCESS_MODULE, msgspec.json.encode(Launch(wire.address, config)))
        except OSError as error:
            wire.close()
            raise EngineDead(f"the engine process could not be started: {error}") from error
        client = cls(wire, child, on_progress or log.info)
        try:
            await client._started()
        except BaseException:
            child.kill()
            await client.close()
            raise
        return client

    @property
    def info(self) -> EngineInfo:
        return self._ready.result()

    @property
    def dead(self) -> str | None:
        return self._died.result() if self._died.done() else None

    @property
    def pid(self) -> int:
        return self._child.pid

    async def wait_dead(self) -> str:
        """Returns why, once the engine is gone."""
        return await asyncio.shield(self._died)

    async def submit(self, request: Request) -> AsyncIterator[Output]:
        self._refuse_when_dead()
        assert request.id not in self._open, f"request id {request.id} is in use"
        stream = OutputStream(lambda num_tokens: self._give_up(request.id, num_tokens))
        verdict: asyncio.Future[ErrorInfo | None] = self._loop.create_future()
        self._open[request.id] = _Open(ref(stream), verdict)
        self._send(SubmitRequest(request))
        try:
            error = await verdict
        except asyncio.CancelledError:
            stream.close()
            raise
        if error is not None:
            stream.end()
            raise error.exception()
        return stream

    def finish(self, request_id: RequestId, num_tokens: int) -> None:
        opened = self._open.get(request_id)
        if opened is None:
            return
        self._send(FinishRequest(request_id, num_tokens))
        # The core says no more about it, and what it said meanwhile is not wanted: the stream ends here.
        _settle(opened.verdict, None)
        self._deliver(Output(request_id, finish=FinishReason.ABORT))

    async def stats(self) -> EngineStats:
        return await self._ask(GetStats(), self._stats)

    async def match(self, keys: bytes, num_tokens: int) -> PrefixMatch:
        return await self._ask(MatchPrefix(keys, num_tokens), self._matches)

    async def hint(self, tenant: str, session_id: str, actions: tuple[Hint, ...]) -> tuple[HintAnswer, ...]:
        return await self._ask(KVHint(tenant, session_id, actions), self._hints)

    def outcome(self, request_id: RequestId, reason: str, tools: tuple[str, ...]) -> None:
        if not self._died.done():
            self._send(TurnOutcome(request_id, reason, tools))

    async def cache_report(self) -> CacheReport:
        return await self._ask(GetCacheReport(), self._reports)

    async def check(self) -> None:
        """Recomputes the core's invariants over there; raises SamovarError with the one that does not hold."""
        violation = await self._ask(Check(), self._checks)
        if violation is not None:
            raise SamovarError(f"the engine's state is inconsistent: {violation}")

    async def close(self) -> None:
        """Ends the engine and frees the socket. Open requests get an ERROR output. Idempotent."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if not self._died.done():
            self._send(Shutdown())
        await self._child.end(CLOSE_GRACE_S)
        await self._watcher
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self._wire.close()

    async def _started(self) -> None:
        outcomes: set[asyncio.Future[Any]] = {self._ready, self._fatal, self._died}
        await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
        if self._fatal.done():
            raise self._fatal.result().exception()
        if self._died.done():
            raise EngineDead(f"the engine did not start: {self._died.result()}")

    async def _ask(self, question: ToEngine, waiting: deque[asyncio.Future[T]]) -> T:
        self._refuse_when_dead()
        answer: asyncio.Future[T] = self._loop.create_future()
        waiting.append(answer)
        self._send(question)
        return await answer

    def _refuse_when_dead(self) -> None:
        if self._died.done():
            raise EngineDead(f"the engine is gone: {self._died.result()}")

    def _give_up(self, request_id: RequestId, num_tokens: int) -> None:
        # A stream may be collected in any thread, and after the loop has ended.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.finish, request_id, num_tokens)

    def _send(self, message: ToEngine) -> None:
        """Sends at once. Where the peer is gone the socket keeps the frame; closing it drops the frame."""
        if not self._wire.socket.closed:
            self._wire.socket.send(self._wire.encoder.encode(message))

    async def _read(self) -> None:
        while True:
            frame = await self._wire.socket.recv()
            try:
                message = self._wire.decoder.decode(frame)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                # A bug of ours. Without what the frame said its requests would wait for ever; this way they are told.
                log.exception("an answer of %d bytes from the engine cannot be read", len(frame))
                _settle(self._fatal, ErrorInfo(SamovarError.code, f"its answer could not be read: {error}"))
                self._child.kill()
                return
            try:
                self._handle(message)
            except Exception:
                # A callback that raises, or an answer nobody asked for: whoever waits for the next message must get it.
                log.exception("%s from the engine could not be handled", type(message).__name__)

    def _handle(self, message: FromEngine) -> None:
        match message:
            case Outputs(outputs=outputs):
                for output in outputs:
                    self._deliver(output)
            case Verdicts(verdicts=verdicts):
                for verdict in verdicts:
                    self._judge(verdict)
            case Stats(stats=stats):
                _settle(self._stats.popleft(), stats)
            case Matched(match=found):
                _settle(self._matches.popleft(), found)
            case Hinted(answers=answers):
                _settle(self._hints.popleft(), answers)
            case CacheReported(report=report):
                _settle(self._reports.popleft(), report)
            case Checked(violation=violation):
                _settle(self._checks.popleft(), violation)
            case Ready(info=info):
                _settle(self._ready, info)
            case Fatal(error=error):
                _settle(self._fatal, error)
            case Progress(text=text):
                self._on_progress(text)

    def _deliver(self, output: Output) -> None:
        opened = self._open.get(output.request_id)
        if opened is None:
            return
        if output.finish is not None:
            del self._open[output.request_id]
        stream = opened.stream()
        if stream is not None:
            stream.put(output)

    def _judge(self, verdict: Verdict) -> None:
        opened = self._open.get(verdict.request_id)
        if opened is None:
            return
        if verdict.error is not None:
            del self._open[verdict.request_id]
        stream = opened.stream()
        if stream is not None:
            stream.hints = verdict.hints
        _settle(opened.verdict, verdict.error)

    async def _watch(self) -> None:
        code = await self._child.wait()
        # What it sent before its end may still be on the way: a last word of its own, or outputs.
        patience = 0.5 if code > 0 else 0.05
        await asyncio.wait({self._fatal}, timeout=patience)
        if self._closing is not None:
            reason = "it was closed"
        elif self._fatal.done():
            reason = self._fatal.result().message
        else:
            words = f": {self._child.last_line}" if self._child.last_line else ""
            reason = f"{describe_exit(code)}{words}"
        self._bury(reason)

    def _bury(self, reason: str) -> None:
        self._died.set_result(reason)
        info = ErrorInfo(EngineDead.code, f"the engine is gone: {reason}")
        for request_id, opened in list(self._open.items()):
            _settle(opened.verdict, info)
            self._deliver(Output(request_id, finish=FinishReason.ERROR, error=info))
        questions: list[asyncio.Future[Any]] = [
            *self._stats, *self._matches, *self._hints, *self._reports, *self._checks,
        ]  # fmt: skip
        for waiting in questions:
            if not waiting.done():
                waiting.set_exception(info.exception())


def _settle(future: asyncio.Future[T], value: T) -> None:
    """Unless whoever waited has gone."""
    if not future.done():
        future.set_result(value)
