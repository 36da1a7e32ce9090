"""Who asks, from a request."""

from __future__ import annotations

from starlette.requests import Request

from samovar.serve.preparing import Caller
from samovar.serve.request_ids import client_id
from samovar.serve.state import ServerState


def caller_of(state: ServerState, request: Request) -> Caller:
    """Raises Unauthorized."""
    return Caller(state.auth.tenant(request.headers), request.headers, client_id(request.scope))
