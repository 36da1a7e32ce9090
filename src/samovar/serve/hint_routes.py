"""Hints by themselves, when no request is due: in a tool call's pause, or once a conversation is over.

A session is always one of the caller's: another tenant's is answered as one that never was.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from samovar.base.errors import InvalidField, NotFound
from samovar.base.shown import shown
from samovar.policy.hints import Hint
from samovar.serve.bodies import HintsBody
from samovar.serve.callers import caller_of
from samovar.serve.documents import answers, takes
from samovar.serve.hint_envelope import read_envelope
from samovar.serve.hint_fields import Asked
from samovar.serve.hints import Hints
from samovar.serve.json_input import parse_object
from samovar.serve.json_output import JsonResponse
from samovar.serve.preparing import Caller
from samovar.serve.session import Session, session_of, usable_session
from samovar.serve.state import ServerState
from samovar.serve.validation import validate

RELEASE = (Asked("release", Hint("release")),)


def routes(state: ServerState) -> APIRouter:
    router = APIRouter()

    @router.post(
        "/v1/kv/hints",
        responses=answers(400, 401, 408, 413, 415, 429, 503),
        openapi_extra=takes(HintsBody),
        response_class=Response,
    )
    async def kv_hints(request: Request) -> Response:
        caller = caller_of(state, request)
        with state.uploads.begin(request) as upload:
            raw = await upload.read()
            hints = await state.workers.run(len(raw), partial(hints_in, caller, raw))
        return await _passed_on(state, caller.tenant, hints)

    @router.delete("/v1/sessions/{id:path}", responses=answers(401, 404, 503), response_class=Response)
    async def end_session(request: Request, id: str) -> Response:
        tenant = state.auth.tenant(request.headers)
        told = await state.service.hint(tenant, id, (Hint("release"),)) if usable_session(id) else ()
        if all(answer.status == "ignored" for answer in told):
            raise NotFound(f"There is no session {shown(id)} here (any more).", param="session_id")
        return JsonResponse({"session_id": id, "kv_hints": Hints(Session(id), RELEASE).report(told)})

    return router


def hints_in(caller: Caller, raw: bytes) -> Hints:
    """The hints of a body that has nothing else. Raises RequestErrors."""
    value = parse_object(raw)
    body = validate(HintsBody, value)
    session = session_of(body, caller.headers)
    if not session.id:
        raise InvalidField("session_id: this field is required.", param="session_id")
    if body.kv_hints is None:
        envelope = read_envelope(value, "", session.id)
    else:
        envelope = read_envelope(body.kv_hints, "kv_hints", session.id)
    return Hints(session, envelope.asked, envelope.message_id, told=True)


async def _passed_on(state: ServerState, tenant: str, hints: Hints) -> Response:
    actions = hints.actions
    told = await state.service.hint(tenant, hints.session.id, actions) if actions else ()
    return JsonResponse({"session_id": hints.session.id, "kv_hints": hints.report(told)})
