"""Ids: integers for the engine, text for clients and their logs."""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import count
import re
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samovar.base.ids import RequestId

HEADER = "x-request-id"
_USABLE = re.compile(r"[!-~]{1,128}")


class RequestIds:
    """Unique for the life of the server; may be asked from several threads (`next` on a C iterator is atomic)."""

    def __init__(self) -> None:
        self._count = count(1)

    def new(self) -> RequestId:
        return RequestId(next(self._count))


def client_id(scope: MutableMapping[str, Any]) -> str:
    """The id that the response's X-Request-Id has: the client's own when it is usable."""
    found = scope.get("state", {}).get(HEADER)
    return found if isinstance(found, str) else uuid4().hex


class RequestIdHeader:
    """ASGI middleware: every response has X-Request-Id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        known = given if _USABLE.fullmatch(given) else uuid4().hex
        scope.setdefault("state", {})[HEADER] = known

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = known
            await send(message)

        await self._app(scope, receive, with_id)
