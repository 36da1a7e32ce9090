"""Every failure as a status and a body in OpenAI's shape; nothing internal ever reaches a client."""

from __future__ import annotations

import math
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from samovar.base.errors import (
    NotFound,
    RateLimited,
    RequestError,
    SamovarError,
    Saturated,
    Unauthorized,
    UploadTimeout,
)
from samovar.base.shown import shown
from samovar.serve.anthropic import errors as anthropic
from samovar.serve.disconnect import ClientGone
from samovar.serve.json_output import JsonResponse
from samovar.serve.metrics import Metrics
from samovar.serve.request_ids import client_id

INTERNAL = SamovarError("The server had an internal error.")
NOBODY_LEFT = 499
"""Status of an answer that cannot arrive, for the access log; nginx's number for it."""
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def error_body(error: SamovarError) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": _type(error), "param": error.param, "code": error.code}}


def error_response(error: SamovarError, request: Request | None = None) -> Response:
    """In the shape of the API that `request` is one of."""
    headers: dict[str, str] = {}
    if error.status in (429, 503):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s or 1)))
    if isinstance(error, UploadTimeout):
        headers["connection"] = "close"
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if request is None or not anthropic.is_ours(request.url.path):
        return JsonResponse(error_body(error), status_code=error.status, headers=headers)
    id = client_id(request.scope)
    headers[anthropic.REQUEST_ID] = id
    return JsonResponse(anthropic.error_body(error, id), status_code=anthropic.status_of(error), headers=headers)


def install_handlers(app: FastAPI, metrics: Metrics) -> None:
    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, SamovarError)
        metrics.error(error.code)
        return error_response(error, request)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = HTTP_CODES.get(error.status_code, "http_error")
        known = NotFound(f"There is no {request.method} {shown(request.url.path)} here.")
        headers = dict(error.headers or {})
        if anthropic.is_ours(request.url.path):
            id = client_id(request.scope)
            headers[anthropic.REQUEST_ID] = id
            body = anthropic.http_error_body(error.status_code, known.message, id)
        else:
            body = error_body(known)
            body["error"]["code"] = code
        return JsonResponse(body, status_code=error.status_code, headers=headers)

    async def nobody(request: Request, error: Exception) -> Response:
        metrics.disconnects.inc()
        return Response(status_code=NOBODY_LEFT)

    async def bug(request: Request, error: Exception) -> Response:
        metrics.error(INTERNAL.code)
        return error_response(INTERNAL, request)

    app.add_exception_handler(SamovarError, ours)
    app.add_exception_handler(ClientGone, nobody)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, bug)


def _type(error: SamovarError) -> str:
    if isinstance(error, Unauthorized):
        return "authentication_error"
    if isinstance(error, RequestError):
        return "invalid_request_error"
    return "rate_limit_error" if isinstance(error, Saturated | RateLimited) else "server_error"
