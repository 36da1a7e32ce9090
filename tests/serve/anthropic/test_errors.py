"""Failures in the API's own shape."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.base.errors import (
    ContextLengthExceeded,
    Draining,
    EngineDead,
    RateLimited,
    RequestError,
    SamovarError,
    Saturated,
    StepFailed,
    UploadTimeout,
    error_classes,
)
from samovar.serve.anthropic.errors import error_body, is_ours, status_of
from tests.serve.anthropic.conftest import ask
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer
from tests.serve.scripted import Script


def checked(response: Any) -> dict[str, str]:
    body = response.json()
    assert body.keys() == {"type", "error", "request_id"} and body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    error: dict[str, str] = body["error"]
    assert error.keys() == {"type", "message"} and error["message"]
    return error


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens: must be at least 0; got -1."),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"temperature": 1.5}, "temperature: must be at most 1; got 1.5."),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "x"}, "stop_sequences: must be an array"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]"),
        ({"stop_sequences": ["x" * 2000]}, "stop_sequences[0]"),
        ({"stop_sequences": ["x"] * 99}, "stop_sequences: must have at most"),
        ({"tools": {}}, "tools"),
        ({"metadata": 5}, "metadata"),
        ({"session_id": "a\nb"}, "session_id"),
        ({"content": [{"type": "image", "source": {}}]}, "messages[0].content[0].type: content of type 'image'"),
        ({"content": [{"type": "novel"}]}, "messages[0].content[0].type: content of type 'novel'"),
    ],
)
async def test_faulty_fields(server: Server, fields: dict[str, Any], wanted: str) -> None:
    response = await ask(server, **fields)
    assert response.status_code == 400
    error = checked(response)
    assert error["type"] == "invalid_request_error" and error["message"].startswith(wanted)
    assert not server.service.requests


async def test_faulty_bodies(server: Server) -> None:
    for raw in (b"{", b"[]", b"\xff", b'{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 5}'):
        response = await server.client.post("/v1/messages", content=raw)
        assert response.status_code == 400 and checked(response)["type"] == "invalid_request_error"


async def test_keys(make_server: MakeServer) -> None:
    server = make_server(api_keys=("secret",))
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    for headers in ({}, {"x-api-key": "other"}, {"authorization": "Bearer other"}):
        response = await server.client.post("/v1/messages", json=body, headers=headers)
        assert response.status_code == 401 and checked(response)["type"] == "authentication_error"
    for headers in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
        assert (await server.client.post("/v1/messages", json=body, headers=headers)).status_code == 200


async def test_statuses_on_the_way(make_server: MakeServer) -> None:
    server = make_server(served_model_names=("tea",), max_body_bytes=1024)
    response = await ask(server, model="coffee")
    assert (response.status_code, checked(response)["type"]) == (404, "not_found_error")
    response = await ask(server, "x" * 2000)
    assert (response.status_code, checked(response)["type"]) == (413, "request_too_large")
    response = await server.client.get("/v1/messages/nowhere")
    assert (response.status_code, checked(response)["type"]) == (404, "not_found_error")
    response = await server.client.get("/v1/messages")
    assert (response.status_code, checked(response)["type"]) == (405, "invalid_request_error")
    assert response.headers["allow"] == "POST"
    other = await server.client.get("/v1/messages-of-others")
    assert other.status_code == 404 and "type" not in other.json()


@pytest.mark.parametrize(
    ("refusal", "status", "kind", "retry"),
    [
        (Saturated("full", retry_after_s=2.5), 529, "overloaded_error", "3"),
        (RateLimited("your share", retry_after_s=7), 429, "rate_limit_error", "7"),
        (Draining("bye", retry_after_s=4), 529, "overloaded_error", "4"),
        (EngineDead("gone"), 503, "api_error", "1"),
        (StepFailed("oops"), 500, "api_error", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(
    make_server: MakeServer, refusal: SamovarError, status: int, kind: str, retry: str | None, stream: bool
) -> None:
    response = await ask(make_server(Script((), refusal=refusal)), stream=stream)
    assert (response.status_code, response.headers.get("retry-after")) == (status, retry)
    assert checked(response) == {"type": kind, "message": refusal.message}


async def test_shutting_down(server: Server) -> None:
    server.drain.begin()
    response = await ask(server)
    assert response.status_code == 529 and checked(response)["type"] == "overloaded_error"
    assert int(response.headers["retry-after"]) >= 1


def test_every_class_has_a_type() -> None:
    for cls in error_classes().values():
        kind = error_body(cls("x"))["error"]["type"]
        assert status_of(cls("x")) == (529 if kind == "overloaded_error" else cls.status)
        assert (kind == "api_error") == (cls.status in (500, 503) and cls is not Draining)
        if issubclass(cls, RequestError) and cls.status == 400:
            assert kind == "invalid_request_error"
    assert error_body(UploadTimeout("x"))["error"]["type"] == "timeout_error"


def test_a_long_prompt_is_said_in_the_words_that_agents_look_for() -> None:
    def said(**numbers: Any) -> str:
        message: str = error_body(ContextLengthExceeded("Too much.", **numbers))["error"]["message"]
        return message

    assert said(num_tokens=5000, limit=4096) == "prompt is too long: 5000 tokens > 4096 maximum"
    assert said(num_tokens=4096, limit=4096) == "prompt is too long: 4096 tokens > 4095 maximum"
    assert said(num_tokens=9, limit=4, at_least=True) == "prompt is too long: at least 9 tokens > 4 maximum"
    assert said() == "prompt is too long: Too much."


@pytest.mark.parametrize(
    ("path", "ours"),
    [("/v1/messages", True), ("/v1/messages/count_tokens", True), ("/v1/messagesx", False), ("/v1/models", False)],
)
def test_paths(path: str, ours: bool) -> None:
    assert is_ours(path) is ours
