"""Objects to JSON bytes: responses, and the events of a stream."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return _encode(content)


def event(data: dict[str, Any]) -> bytes:
    """A server-sent event. JSON has no line breaks of its own, so one `data:` line holds it."""
    return b"data: " + _encode(data) + b"\n\n"


def named_event(name: str, data: dict[str, Any]) -> bytes:
    """A server-sent event of a kind that readers can tell before they look at the data."""
    return b"event: " + name.encode() + b"\n" + event(data)
