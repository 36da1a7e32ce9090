"""The size of a request body, checked before it is in memory: by its declared length, and while it arrives."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samovar.base.errors import BodyTooLarge
from samovar.serve.errors import error_response


class BodyLimit:
    """ASGI middleware. An undeclared (chunked) body that grows too long makes `receive` raise BodyTooLarge."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = _content_length(scope)
        if declared is not None and declared > self._max_bytes:
            await error_response(self._too_large(f"{declared} bytes"))(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._max_bytes:
                    raise self._too_large("more")
            return message

        await self._app(scope, counted, send)

    def _too_large(self, got: str) -> BodyTooLarge:
        return BodyTooLarge(f"The request body may have at most {self._max_bytes} bytes; got {got}.")


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length":
            return int(value) if value.isdigit() else None
    return None
