"""Hints by themselves, and the end of a session: the caller's own only."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.policy.hints import Hint
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer

ACTIONS = [{"action": "resume_in", "seconds": 3}, {"action": "boil"}, {"action": "prefetch", "action_id": "p"}]
ASKED = (Hint("resume_in", 3.0), Hint("prefetch"))


async def begin(server: Server, session: str, **headers: str) -> None:
    response = await server.post("/v1/completions", {"prompt": "Hi", "session_id": session}, **headers)
    assert response.status_code == 200


@pytest.mark.parametrize("bare", [False, True])
async def test_hints(make_server: MakeServer, bare: bool) -> None:
    server = make_server()
    await begin(server, "s")
    envelope = {"protocol_version": 1, "message_id": "m", "actions": ACTIONS}
    body = {"session_id": "s", **envelope} if bare else {"session_id": "s", "kv_hints": envelope}
    response = await server.post("/v1/kv/hints", body)
    assert response.status_code == 200 and response.json() == {
        "session_id": "s",
        "kv_hints": {
            "message_id": "m",
            "answers": [
                {"action": "resume_in", "status": "applied", "reason": ""},
                {"action": "boil", "status": "ignored", "reason": "unknown action"},
                {"action": "prefetch", "action_id": "p", "status": "applied", "reason": ""},
            ],
        },
    }
    assert server.service.hinted == [("", "s", ASKED)]


@pytest.mark.parametrize(
    ("fields", "headers", "session"),
    [
        ({}, {"X-Session-ID": "h"}, "h"),
        ({"session_id": "b"}, {"X-Session-ID": "h"}, "b"),
        ({"prompt_cache_key": "k"}, {}, "k"),
        ({}, {"X-Claude-Code-Session-Id": "c", "X-Claude-Code-Agent-Id": "a"}, "c/a"),
        ({"metadata": {"user_id": '{"session_id": "u"}'}}, {}, "u"),
    ],
)
async def test_a_session_is_named_as_in_requests(
    server: Server, fields: dict[str, Any], headers: dict[str, str], session: str
) -> None:
    await server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], **fields}, **headers)
    response = await server.post("/v1/kv/hints", {"actions": ACTIONS, **fields}, **headers)
    assert response.json()["session_id"] == session == server.service.requests[0].session_id
    assert [told["status"] for told in response.json()["kv_hints"]["answers"]] == ["applied", "ignored", "applied"]


async def test_an_unknown_session_is_the_engine_s_to_judge(server: Server) -> None:
    response = await server.post("/v1/kv/hints", {"session_id": "nobody", "actions": ACTIONS})
    assert response.status_code == 200
    assert {told["status"] for told in response.json()["kv_hints"]["answers"]} == {"ignored"}


async def test_nothing_to_pass_on(server: Server) -> None:
    response = await server.post("/v1/kv/hints", {"session_id": "s", "actions": [{"action": "boil"}]})
    assert response.status_code == 200 and not server.service.hinted


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "session_id"),
        ({"actions": []}, "session_id"),
        ({"session_id": "s"}, "actions"),
        ({"session_id": "s", "kv_hints": {}}, "kv_hints.actions"),
        ({"session_id": "s", "kv_hints": 5}, "kv_hints"),
        ({"session_id": "a\nb", "actions": []}, "session_id"),
        ({"session_id": "s" * 257, "actions": []}, "session_id"),
        ({"session_id": "s", "actions": [{"action": "retain"}]}, "actions[0].ttl_s"),
        ({"session_id": "s", "protocol_version": 2, "actions": []}, "protocol_version"),
    ],
)
async def test_refused(server: Server, body: dict[str, Any], param: str) -> None:
    response = await server.post("/v1/kv/hints", body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param
    assert not server.service.hinted


async def test_the_end_of_a_session(make_server: MakeServer) -> None:
    server = make_server()
    for session in ("s", "root/a1", "ü 1"):
        await begin(server, session)
        response = await server.client.delete(f"/v1/sessions/{session}")
        assert response.status_code == 200 and response.json() == {
            "session_id": session,
            "kv_hints": {"message_id": None, "answers": [{"action": "release", "status": "applied", "reason": ""}]},
        }
    assert server.service.hinted == [("", session, (Hint("release"),)) for session in ("s", "root/a1", "ü 1")]


async def test_sessions_stay_inside_their_tenant(make_server: MakeServer) -> None:
    """Somebody else's session is answered exactly as one that never was."""
    server = make_server(api_keys=("one", "two"))
    await begin(server, "mine-7", **{"x-api-key": "one"})

    async def both(session: str, key: str) -> list[Any]:
        headers = {"x-api-key": key}
        gone = await server.client.delete(f"/v1/sessions/{session}", headers=headers)
        told = await server.post("/v1/kv/hints", {"session_id": session, "actions": ACTIONS}, **headers)
        return [gone.status_code, gone.text.replace(session, "?"), told.status_code, told.text.replace(session, "?")]

    assert await both("mine-7", "two") == await both("none-7", "two") == await both("none-7", "one")
    assert (await both("mine-7", "two"))[0] == 404 and (await both("mine-7", "one"))[0] == 200
    assert (await server.client.delete("/v1/sessions/s")).status_code == 401
    assert (await server.post("/v1/kv/hints", {"session_id": "s", "actions": ACTIONS})).status_code == 401
    tenant = server.service.requests[0].tenant
    assert {whose for whose, session, _ in server.service.hinted if session == "mine-7"} > {tenant}


@pytest.mark.parametrize("session", ["", "s" * 257, "a%0Ab"])
async def test_what_can_be_no_session(server: Server, session: str) -> None:
    response = await server.client.delete(f"/v1/sessions/{session}")
    assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"
    assert not server.service.hinted


async def test_a_dead_engine(server: Server) -> None:
    server.service.die("gone")
    assert (await server.client.delete("/v1/sessions/s")).status_code == 503
    assert (await server.post("/v1/kv/hints", {"session_id": "s", "actions": ACTIONS})).status_code == 503
