"""Running the server: the socket, signals, draining, and what to do when the engine dies."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
import logging
import signal
import socket
from typing import Any, cast

import uvicorn

from samovar.base.errors import ConfigError
from samovar.core.ports import Service
from samovar.serve.app import make_app
from samovar.serve.config import ServeConfig
from samovar.serve.connections import BoundedConnection, ConnectionLimits, connections_allowed
from samovar.serve.drain import Drain
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""For the next request of a connection to begin."""
LAST_BYTES_S = 2.0
"""For connections to take the last bytes of their answers, after draining."""
LAST_WORD_S = 0.2
"""For open requests to end by themselves after a second signal: one that is torn down leaves a traceback in the log."""
OK, ENGINE_DIED = 0, 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def listen(config: ServeConfig) -> socket.socket:
    """A bound socket, before anything slow is started. Raises ConfigError naming host and port."""
    try:
        infos = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {config.host}: cannot listen on it: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--host {config.host} --port {config.port}: cannot listen there: {error.strerror or error}"
        ) from None
    return listener


async def serve(
    service: Service,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    config: ServeConfig,
    listener: socket.socket | None = None,
) -> int:
    """Answers until SIGINT or SIGTERM came and open requests ended (exit code 0), or the engine died (1). A second
    signal ends it at once. Owns `listener` (see `listen`), not the service. Call it on the main thread."""
    listener = listener or listen(config)
    drain = Drain()
    app = make_app(service, tokenizer, template, config, drain)
    limits = ConnectionLimits(connections_allowed(config.max_connections), KEEP_ALIVE_S + config.body_timeout_s)
    server = _Server(
        uvicorn.Config(
            app,
            http=cast(type[asyncio.Protocol], partial(BoundedConnection, limits)),
            access_log=config.access_log,
            log_config=None,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(LAST_BYTES_S)),
        )
    )
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        with _signals() as signals:
            await _until_ended(service, signals, running)
            died = service.dead is not None
            if not running.done():
                await _unless(signals.second, _wind_down(service, config, drain, signals))
            if signals.second.is_set():
                drain.cut_off()
                await drain.finished(LAST_WORD_S)
            server.should_exit = True
            server.force_exit = signals.second.is_set()
            await running
    finally:
        running.cancel()
        listener.close()
    return ENGINE_DIED if died else OK


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled here, in `serve`: uvicorn would stop accepting before anything is drained."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            # uvicorn leaves it out then, and logs a traceback when the loop ends under the waiting application.
            await self.lifespan.shutdown()


@dataclass(frozen=True, slots=True)
class _Signals:
    first: asyncio.Event = field(default_factory=asyncio.Event)
    second: asyncio.Event = field(default_factory=asyncio.Event)


@contextmanager
def _signals() -> Iterator[_Signals]:
    loop = asyncio.get_running_loop()
    signals = _Signals()

    def on_signal() -> None:
        (signals.second if signals.first.is_set() else signals.first).set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield signals
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, or stops doing it when the event comes first."""
    tasks = {asyncio.create_task(work), asyncio.create_task(event.wait())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _until_ended(service: Service, signals: _Signals, running: asyncio.Task[None]) -> None:
    """A signal, the engine's death, or a server that stopped by itself."""
    signal_came, engine_died = asyncio.create_task(signals.first.wait()), asyncio.create_task(service.wait_dead())
    try:
        await asyncio.wait({signal_came, engine_died, running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in (signal_came, engine_died):
            waiting.cancel()
        await asyncio.wait({signal_came, engine_died})


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


async def _wind_down(service: Service, config: ServeConfig, drain: Drain, signals: _Signals) -> None:
    if service.dead is not None:
        log.error("the engine died: %s; answering 503 for %g s", service.dead, config.dead_linger_s)
        await _wait(signals.first, config.dead_linger_s)
        return
    drain.begin()
    log.info("shutting down: %s open", _requests(drain.num_open))
    if not await drain.finished(config.drain_timeout_s):
        log.warning("cutting off %s after %g s", _requests(drain.num_open), config.drain_timeout_s)
        drain.cut_off()
        await drain.finished(LAST_BYTES_S)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
