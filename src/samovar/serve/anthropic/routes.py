"""The endpoints of the Messages API."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from samovar.serve.anthropic.bodies import CountTokensBody, MessagesBody
from samovar.serve.anthropic.documents import answers
from samovar.serve.anthropic.errors import REQUEST_ID
from samovar.serve.anthropic.format import MessagesFormat
from samovar.serve.anthropic.preparing import count_tokens, messages_job
from samovar.serve.callers import caller_of
from samovar.serve.documents import takes
from samovar.serve.handler import generate
from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.job import Job
from samovar.serve.json_output import JsonResponse
from samovar.serve.request_ids import client_id
from samovar.serve.state import ServerState


def routes(state: ServerState) -> APIRouter:
    """Query parameters (`?beta=true`) and headers of versions and betas are accepted and change nothing."""
    router = APIRouter()
    ignored = IgnoredTools()

    @router.post(
        "/v1/messages",
        responses=answers(500, 503, stream=True),
        openapi_extra=takes(MessagesBody),
        response_class=Response,
    )
    async def messages(request: Request) -> Response:
        id = client_id(request.scope)

        def format(job: Job) -> MessagesFormat:
            return MessagesFormat(job, state.limits.max_model_len, id)

        response = await generate(state, request, partial(messages_job, ignored), format)
        response.headers[REQUEST_ID] = id
        return response

    @router.post(
        "/v1/messages/count_tokens",
        responses=answers(),
        openapi_extra=takes(CountTokensBody),
        response_class=Response,
    )
    async def count(request: Request) -> Response:
        caller = caller_of(state, request)
        with state.uploads.begin(request) as upload:
            raw = await upload.read()
            answer = await state.workers.run(len(raw), partial(count_tokens, ignored, state, caller, raw))
            return JsonResponse(answer, headers={REQUEST_ID: caller.request_id})

    return router
