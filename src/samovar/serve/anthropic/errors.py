"""Failures in the shape of the Messages API."""

from __future__ import annotations

from typing import Any

from samovar.base.errors import (
    BodyTooLarge,
    ContextLengthExceeded,
    Draining,
    NotFound,
    RateLimited,
    RequestError,
    SamovarError,
    Saturated,
    Unauthorized,
    UploadTimeout,
)

OVERLOADED = 529
"""This API's own status for a server that is full."""
REQUEST_ID = "request-id"
"""The header that this API's clients read, beside everyone's X-Request-Id."""
_PATH = "/v1/messages"
_TYPES: tuple[tuple[type[SamovarError], str], ...] = (
    (Unauthorized, "authentication_error"),
    (NotFound, "not_found_error"),
    (BodyTooLarge, "request_too_large"),
    (UploadTimeout, "timeout_error"),
    (RequestError, "invalid_request_error"),
    (RateLimited, "rate_limit_error"),
    (Saturated, "overloaded_error"),
    (Draining, "overloaded_error"),
)
"""The first that an error is one of; api_error for the rest."""


def is_ours(path: str) -> bool:
    """Whether a request to this path gets its errors in this shape."""
    return path == _PATH or path.startswith(f"{_PATH}/")


def error_body(error: SamovarError, request_id: str | None = None) -> dict[str, Any]:
    return _body(_type(error), _message(error), request_id)


def status_of(error: SamovarError) -> int:
    return OVERLOADED if _type(error) == "overloaded_error" else error.status


def http_error_body(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """For what the framework itself refuses: no such path, or no such method there."""
    return _body("not_found_error" if status == 404 else "invalid_request_error", message, request_id)


def _body(kind: str, message: str, request_id: str | None) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def _type(error: SamovarError) -> str:
    return next((kind for cls, kind in _TYPES if isinstance(error, cls)), "api_error")


def _message(error: SamovarError) -> str:
    """Of a prompt that does not fit, agents look for one wording, and compact the conversation when they see it."""
    if not isinstance(error, ContextLengthExceeded):
        return error.message
    if error.num_tokens is None or error.limit is None:
        return f"prompt is too long: {error.message}"
    room = error.limit if error.num_tokens > error.limit else error.limit - 1
    tokens = f"at least {error.num_tokens}" if error.at_least else error.num_tokens
    return f"prompt is too long: {tokens} tokens > {room} maximum"
