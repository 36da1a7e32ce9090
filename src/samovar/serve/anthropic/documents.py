"""The answers of the Messages API in the OpenAPI document."""

from __future__ import annotations

from samovar.serve import documents
from samovar.serve.anthropic.errors import OVERLOADED
from samovar.serve.documents import Responses

_ERROR = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"enum": ["error"]},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": ["string", "null"]},
    },
}
_ALWAYS = (400, 401, 404, 408, 413, 415, 429, OVERLOADED)
_MEANINGS = {
    400: "A field is wrong; the message names it.",
    401: "The API key is missing or unknown.",
    404: "No such model.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is compressed in an unknown way.",
    429: "This caller's share is used up; see Retry-After.",
    500: "The step that computed this request failed.",
    503: "The engine is gone.",
    OVERLOADED: "The server is full or shutting down; see Retry-After.",
}


def answers(*more: int, stream: bool = False) -> Responses:
    """200, and the errors that can come instead: those of every endpoint, and `more`."""
    kinds = ("application/json", "text/event-stream") if stream else ("application/json",)
    return documents.answers(*_ALWAYS, *more, kinds=kinds, error=_ERROR, meanings=_MEANINGS)
