"""The endpoints of the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
import re

from fastapi import APIRouter
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samovar.base.errors import InvalidField, NotFound, RequestError, SamovarError
from samovar.base.shown import shown
from samovar.serve.config import StoreLimits
from samovar.serve.documents import answers, takes
from samovar.serve.handler import generate
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.json_output import JsonResponse
from samovar.serve.responses.bodies import ResponsesBody
from samovar.serve.responses.exchange import Exchange
from samovar.serve.responses.listed import page
from samovar.serve.responses.store import ResponseStore, Running, Stored
from samovar.serve.state import ServerState

IGNORED_TOOLS = "x-samovar-ignored-tools"
_ERRORS = (400, 401, 404, 408, 413, 429, 500, 503)
_LOOKUP_ERRORS = (401, 404)
_HEADER_SAFE = re.compile(r"[\w.-]{1,64}", re.ASCII)


def routes(state: ServerState, limits: StoreLimits | None = None) -> APIRouter:
    router = APIRouter()
    store = ResponseStore(limits or StoreLimits())
    ignored = IgnoredTools()

    @router.post(
        "/v1/responses",
        responses=answers(*_ERRORS, kinds=("application/json", "text/event-stream")),
        openapi_extra=takes(ResponsesBody),
        response_class=Response,
    )
    async def create(request: Request) -> Response:
        return await _answered(state, request, Exchange(store, ignored))

    @router.post(
        "/v1/responses/compact",
        responses=answers(*_ERRORS),
        openapi_extra=takes(ResponsesBody),
        response_class=Response,
    )
    async def compact(request: Request) -> Response:
        return await _answered(state, request, Exchange(store, ignored, compaction=True))

    _kept_routes(router, state, store)
    return router


def _kept_routes(router: APIRouter, state: ServerState, store: ResponseStore) -> None:
    """Of responses that were made before."""

    @router.get("/v1/responses/{id}", responses=answers(400, *_LOOKUP_ERRORS), response_class=Response)
    async def retrieve(request: Request, id: str) -> Response:
        tenant = state.auth.tenant(request.headers)
        if request.query_params.get("stream") == "true":
            raise InvalidField("stream: events are not kept; leave it out to get the response.", param="stream")
        found = _found(store, tenant, id)
        if isinstance(found, Running):
            return JsonResponse(found.snapshot())
        return Response(found.response, media_type="application/json")

    @router.delete("/v1/responses/{id}", responses=answers(*_LOOKUP_ERRORS), response_class=Response)
    async def delete(request: Request, id: str) -> Response:
        tenant = state.auth.tenant(request.headers)
        running = store.running(tenant, id)
        if running is not None:
            running.cancel()
        if not store.forget(tenant, id):
            raise _unknown(id)
        return JsonResponse({"id": id, "object": "response", "deleted": True})

    @router.post("/v1/responses/{id}/cancel", responses=answers(400, *_LOOKUP_ERRORS), response_class=Response)
    async def cancel(request: Request, id: str) -> Response:
        found = _found(store, state.auth.tenant(request.headers), id)
        if not isinstance(found, Running):
            raise RequestError(f"The response {shown(id)} has ended already; only one in progress can be cancelled.")
        found.cancel()
        return JsonResponse(found.snapshot())

    @router.get("/v1/responses/{id}/input_items", responses=answers(400, *_LOOKUP_ERRORS), response_class=Response)
    async def input_items(request: Request, id: str) -> Response:
        found = _found(store, state.auth.tenant(request.headers), id)
        if isinstance(found, Running):
            raise RequestError(f"The response {shown(id)} is still in progress; its items can be listed when it ended.")
        # They may be many, and long.
        items = await state.workers.thread(partial(_page, found, request.query_params))
        return Response(items, media_type="application/json")


async def _answered(state: ServerState, request: Request, exchange: Exchange) -> Response:
    try:
        response = await generate(state, request, exchange.prepare, exchange.format, exchange.opened)
    except SamovarError as error:
        try:
            response = JsonResponse(exchange.failed(error))
        finally:
            exchange.close()
    except BaseException:
        exchange.close()
        raise
    if exchange.ignored_tools:
        kinds = [kind if _HEADER_SAFE.fullmatch(kind) else "?" for kind in exchange.ignored_tools]
        response.headers[IGNORED_TOOLS] = f"{len(kinds)}; {', '.join(dict.fromkeys(kinds))}"
    return _Closing(response, exchange.close)


class _Closing(Response):
    """An answer, and what has to happen when it has been written or nobody is left to read it."""

    def __init__(self, answer: Response, close: Callable[[], None]) -> None:
        self.background = None
        self._answer = answer
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            self._close()


def _page(stored: Stored, query: Mapping[str, str]) -> bytes:
    """One page of a response's input, in JSON."""
    found = page(stored.segment.inputs(), query.get("limit"), query.get("order"), query.get("after"))
    return msgspec.json.encode(found)


def _found(store: ResponseStore, tenant: str, id: str) -> Running | Stored:
    found = store.running(tenant, id) or store.stored(tenant, id)
    if found is None:
        raise _unknown(id)
    return found


def _unknown(id: str) -> NotFound:
    return NotFound(f"There is no response {shown(id)} here (any more).", param="response_id")
