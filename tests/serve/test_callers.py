"""Who is calling: API keys, tenants, cache domains, sessions, request ids, body sizes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samovar.base.errors import Unauthorized
from samovar.serve.auth import Authenticator
from samovar.serve.bodies import ChatBody
from samovar.serve.session import Session, session_of
from tests.serve.asgi import Exchange
from tests.serve.conftest import MakeServer

UUID = "123e4567-e89b-12d3-a456-426614174000"


def test_tenants() -> None:
    auth = Authenticator(["one", "two"])
    first = auth.tenant({"authorization": "Bearer one"})
    assert first == auth.tenant({"x-api-key": "one"}) == Authenticator(["one"]).tenant({"authorization": "bearer one"})
    assert first != auth.tenant({"x-api-key": "two"}) and "one" not in first
    assert Authenticator([]).tenant({"x-api-key": "whatever"}) == ""
    for headers in ({}, {"x-api-key": "three"}, {"authorization": "Basic one"}, {"authorization": "Bearer "}):
        with pytest.raises(Unauthorized):
            auth.tenant(headers)


async def test_keys_guard_everything_but_operations(make_server: MakeServer) -> None:
    server = make_server(api_keys=("one",))
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        response = await server.client.post(path, content=b"{")
        assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert (await server.client.post(path, content=b"{", headers={"x-api-key": "one"})).status_code == 400
    for path in ("/v1/models", "/v1/models/tea"):
        assert (await server.client.get(path)).status_code == 401
    for path in ("/health", "/version", "/metrics"):
        assert (await server.client.get(path)).status_code == 200


async def test_cache_domains(make_server: MakeServer) -> None:
    """A prompt is warm for the caller who sent it, with the same salt, and for nobody else."""
    server = make_server(api_keys=("one", "two"))
    body = {"prompt": "x" * 100}

    async def cached(key: str, **fields: Any) -> int:
        response = await server.post("/v1/completions", {**body, **fields}, **{"x-api-key": key})
        return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [await cached("one"), await cached("two"), await cached("one"), await cached("two")] == [0, 0, 96, 96]
    tenant = Authenticator(["one"]).tenant({"x-api-key": "one"})
    assert await cached("two", cache_salt=tenant) == 0
    assert await cached("one", cache_salt=tenant) == 0
    assert await cached("one", cache_salt=tenant) == 96
    assert {request.tenant for request in server.service.requests} >= {tenant}


def session(body: dict[str, Any], headers: dict[str, str] | None = None) -> Session:
    return session_of(ChatBody.model_validate({"messages": [], **body}), headers or {})


SOURCES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"session_id": "body"}, {}),
    ({}, {"x-session-id": "header"}),
    ({}, {"x-claude-code-session-id": "claude"}),
    ({"metadata": {"user_id": f"user_0f_account_{UUID}_session_{UUID}"}}, {}),
    ({}, {"thread-id": "codex"}),
    ({"prompt_cache_key": "cache key"}, {}),
    ({}, {"x-dynamo-session-id": "dynamo"}),
    ({}, {"x-correlation-id": "correlation"}),
]
NAMES = ["body", "header", "claude", UUID, "codex", "cache key", "dynamo", "correlation", ""]


@pytest.mark.parametrize("first", range(9))
def test_session_precedence(first: int) -> None:
    body = {key: value for fields, _ in SOURCES[first:] for key, value in fields.items()}
    headers = {key: value for _, fields in SOURCES[first:] for key, value in fields.items()}
    found = session(body, headers)
    assert found.id == NAMES[first] and found.shared is (NAMES[first] == "cache key")


def test_session_forms() -> None:
    user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": UUID})
    assert session({"metadata": {"user_id": user}}).id == UUID
    for unusable in ("{", "{}", '{"session_id": 5}', "[1]", "plain", '{"session_id": "\\ud800"}', "{" * 5000):
        assert session({"metadata": {"user_id": unusable}}, {"x-dynamo-session-id": "d"}).id == "d"
    assert session({"metadata": {"user_id": 5}}).id == ""
    assert session({"prompt_cache_key": "k" * 257}, {"x-session-id": "s" * 257, "x-correlation-id": "c"}).id == "c"
    assert session({}, {"x-parent-session-id": "p", "x-dynamo-parent-session-id": "q"}).parent_id == "p"
    assert session({"parent_session_id": "b"}, {"x-parent-session-id": "p"}).parent_id == "b"


def test_agents_of_a_claude_code_session() -> None:
    session_headers = {"x-claude-code-session-id": "root"}
    agent, parent = "x-claude-code-agent-id", "x-claude-code-parent-agent-id"
    assert session({}, {**session_headers, parent: "p"}) == Session("root")
    assert session({}, {**session_headers, agent: "a"}) == Session("root/a", "root")
    assert session({}, {**session_headers, agent: "a", parent: "p"}) == Session("root/a", "root/p")
    assert session({}, {**session_headers, agent: "a", "x-parent-session-id": "q"}) == Session("root/a", "q")
    user = {"metadata": {"user_id": f"user_0f_account_{UUID}_session_{UUID}"}}
    assert session(user, {agent: "a"}) == Session(f"{UUID}/a", UUID)
    for unusable in ("", "a\n", "a" * 252):
        assert session({}, {**session_headers, agent: unusable, parent: "p"}) == Session("root")
    assert session({}, {**session_headers, agent: "a", parent: "p" * 252}) == Session("root/a", "root")
    for other in ({"session_id": "b"}, {"prompt_cache_key": "k"}):
        assert session(other, {agent: "a", parent: "p"}).id == next(iter(other.values()))
    assert session({"session_id": "b"}, {**session_headers, agent: "a"}) == Session("b")


def test_threads_of_codex() -> None:
    """Root and sub-agent share the session and the cache key."""
    body, headers = {"prompt_cache_key": "t0"}, {"session-id": "t0", "x-client-request-id": "t0"}
    assert session(body, {**headers, "thread-id": "t0"}) == Session("t0")
    assert session(body, {**headers, "thread-id": "t1", "x-codex-parent-thread-id": "t0"}) == Session("t1", "t0")
    assert session(body, headers) == Session("t0", shared=True)


async def test_session_reaches_the_engine(make_server: MakeServer) -> None:
    server = make_server()
    messages = [{"role": "user", "content": "Hi"}]
    headers = {"X-Session-ID": "s", "X-Dynamo-Parent-Session-ID": "p"}
    await server.post("/v1/chat/completions", {"messages": messages}, **headers)
    request = server.service.requests[0]
    assert (request.session_id, request.parent_session_id) == ("s", "p")


async def test_request_ids(make_server: MakeServer) -> None:
    server = make_server()
    response = await server.post("/v1/completions", {"prompt": "a"}, **{"X-Request-Id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1" and response.json()["id"] == "cmpl-mine-1"
    response = await server.post("/v1/completions", {"prompt": "a", "request_id": "body"}, **{"X-Request-Id": "mine"})
    assert response.headers["x-request-id"] == "mine" and response.json()["id"] == "cmpl-body"
    response = await server.complete("")
    assert response.status_code == 400 and len(response.headers["x-request-id"]) == 32
    response = await server.post("/v1/completions", {"prompt": "a"}, **{"X-Request-Id": "a" * 129})
    assert len(response.headers["x-request-id"]) == 32
    assert len({request.id for request in server.service.requests}) == 3


async def test_body_limit(make_server: MakeServer) -> None:
    server = make_server(max_body_bytes=2000)
    response = await server.complete("a" * 2000)
    assert response.status_code == 413 and "2000" in response.json()["error"]["message"]
    assert response.json()["error"]["code"] == "body_too_large" and "x-request-id" in response.headers
    assert (await server.complete("a" * 1900)).status_code == 200
    exchange = Exchange(server.app, "/v1/completions", [b"{"], headers={"content-length": "2001"})
    await exchange.done()
    assert exchange.status == 413 and exchange._incoming.qsize() == 1


async def test_body_limit_without_a_length(make_server: MakeServer) -> None:
    """The answer comes as soon as the limit is passed: the rest is never asked for."""
    server = make_server(max_body_bytes=2000)
    parts = [b'{"prompt": "', *[b"a" * 500] * 10, b'"}']
    exchange = Exchange(server.app, "/v1/completions", parts)
    await exchange.done()
    assert exchange.status == 413 and exchange._incoming.qsize() == len(parts) - 5
    assert json.loads(exchange.body)["error"]["code"] == "body_too_large"
    exchange = Exchange(server.app, "/v1/completions", parts[:3] + parts[-1:])
    await exchange.done()
    assert exchange.status == 200
