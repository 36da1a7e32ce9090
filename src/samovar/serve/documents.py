"""The OpenAPI document: request bodies come from the pydantic models, answers are described by status and type.

Endpoints read their bodies themselves (any content type, OpenAI's errors), so FastAPI has to be told about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from samovar.serve.anthropic.bodies import CountTokensBody, MessagesBody
from samovar.serve.bodies import ChatBody, CompletionBody, DetokenizeBody, HintsBody, TokenizeBody
from samovar.serve.responses.bodies import ResponsesBody

REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (
    ChatBody,
    CompletionBody,
    TokenizeBody,
    DetokenizeBody,
    MessagesBody,
    CountTokensBody,
    ResponsesBody,
    HintsBody,
)
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
_MEANINGS = {
    400: "A field is wrong; `error.param` names it.",
    401: "The API key is missing or unknown.",
    404: "No such model, response or session.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body has an encoding that is not known.",
    429: "A queue is full, or too much is being uploaded; see Retry-After.",
    500: "The step that computed this request failed.",
    503: "The engine is gone or the server is shutting down.",
}

Responses = dict[int | str, dict[str, Any]]


def answers(
    *statuses: int,
    kinds: tuple[str, ...] = ("application/json",),
    error: Mapping[str, Any] | None = None,
    meanings: Mapping[int, str] = _MEANINGS,
) -> Responses:
    """200 in one of `kinds`, and the errors that can come instead. `error`: their schema; None: OpenAI's."""
    schema = {"schema": {"$ref": REF.format(model="Error")} if error is None else error}
    found: Responses = {200: {"description": "The answer.", "content": {kind: {} for kind in kinds}}}
    for status in statuses:
        found[status] = {"description": meanings[status], "content": {"application/json": schema}}
    return found


def takes(model: type[BaseModel]) -> dict[str, Any]:
    return _takes({"$ref": REF.format(model=model.__name__)})


def takes_any(*models: type[BaseModel]) -> dict[str, Any]:
    return _takes({"anyOf": [{"$ref": REF.format(model=model.__name__)} for model in models]})


def _takes(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def install_document(app: FastAPI) -> None:
    """Makes `app.openapi()` complete; the document is built once, when first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _, definitions = models_json_schema([(model, "validation") for model in _BODIES], ref_template=REF)
            document.setdefault("components", {})["schemas"] = {**definitions.get("$defs", {}), "Error": _ERROR}
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
