"""HTTP connections that are neither without number nor without end: uvicorn's protocol with bounds of its own, and with
HTTP/1.0 as it was meant.

uvicorn limits neither how many connections there are, nor how long one may take over a request's head, nor the size of
that head. Bodies are looked after by `uploads`, answers by their readers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
import resource
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from samovar.base.errors import Saturated
from samovar.serve.errors import error_response

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers, as far as they came in pieces."""
RESERVED_FILES = 64
"""Open files that are no connections: the log, the engine's sockets, checkpoint files."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    max_connections: int
    head_timeout_s: float
    """From the connection's start, or the end of its last answer, to the end of the next request's head. What is left
    of a body whose request was answered early is dropped within this time, so that its client can read the answer."""


def connections_allowed(wanted: int) -> int:
    """`wanted`, or what the process may have files open for, if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED_FILES))


class BoundedConnection(HttpToolsProtocol):
    """Used on the event loop only, like its parent."""

    def __init__(self, limits: ConnectionLimits, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self.app = cast(Any, _Unframed(cast(ASGIApp, self.app)))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            transport.write(_refusal(self._limits.max_connections))
            transport.close()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The request's head has more than {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head()

    def _unsupported_upgrade_warning(self) -> None:
        """Quiet: an offer to speak another protocol may be passed over, and is no news to an operator."""

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self._limits.head_timeout_s, self.timeout_keep_alive_handler)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Unframed:
    """Answers of unknown length to HTTP/1.0, which knows no chunks: they end with the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["http_version"] != "1.0":
            await self._app(scope, receive, send)
            return
        cycle = cast(RequestResponseCycle, send.__self__)  # type: ignore[attr-defined]
        framed = True

        async def unframed(message: Message) -> None:
            nonlocal framed
            if message["type"] == "http.response.start":
                framed = any(name.lower() == b"content-length" for name, _ in message["headers"])
            if not framed:
                # uvicorn compares each part with what a content-length promised: it promised just that part.
                cycle.chunked_encoding = False
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, unframed)


def _refusal(limit: int) -> bytes:
    """A whole answer, since there is no request yet that the application could be asked about."""
    response = error_response(Saturated(f"The server has its {limit} connections open.", retry_after_s=1.0))
    head = [b"HTTP/1.1 429 Too Many Requests", b"connection: close"]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])
