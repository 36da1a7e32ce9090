"""Hints on requests of every API: they reach the engine once, and the client that sent them is told what became of
them, whole and streamed, and nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samovar.policy.hints import Hint
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer

MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 50},
    "/v1/responses": {"input": "Hi"},
}
ENVELOPE = {
    "protocol_version": 1,
    "message_id": "m-1",
    "actions": [
        {"action": "retain", "ttl_s": 300},
        {"action": "boil"},
        {"action_id": "r", "action_type": "kv.retain", "action_version": "1.0", "payload": {"duration": 200_000}},
        {"action": "resume_in", "seconds": 12, "bound": "at_most"},
    ],
}
TOLD = {
    "message_id": "m-1",
    "answers": [
        {"action": "retain", "status": "applied", "reason": ""},
        {"action": "boil", "status": "ignored", "reason": "unknown action"},
        {"action": "kv.retain", "action_id": "r", "status": "clipped", "reason": "86400 s is the limit"},
        {"action": "resume_in", "status": "applied", "reason": ""},
    ],
}
ASKED = (Hint("retain", 300.0), Hint("retain", 200_000.0), Hint("resume_in", 12.0, bound="at_most"))
PATHS = pytest.mark.parametrize("path", BODIES)


def parts(text: str) -> list[dict[str, Any]]:
    """The data of every event that is JSON."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def places(value: Any, path: str = "") -> list[str]:
    """Where `kv_hints` is in JSON."""
    found = []
    if isinstance(value, dict):
        for key, item in value.items():
            found += [f"{path}.{key}"] if key == "kv_hints" else places(item, f"{path}.{key}")
    return found


async def post(server: Server, path: str, **fields: Any) -> Any:
    response = await server.post(path, {**BODIES[path], **fields})
    assert response.status_code == 200, response.text
    return response


@PATHS
async def test_whole(make_server: MakeServer, path: str) -> None:
    server = make_server()
    answer = (await post(server, path, kv_hints=ENVELOPE, session_id="s")).json()
    assert answer["kv_hints"] == TOLD and places(answer) == [".kv_hints"]
    (request,) = server.service.requests
    assert request.hints == ASKED and request.session_id == "s"
    assert not server.service.hinted, "with the request, not beside it"


@PATHS
async def test_streamed(make_server: MakeServer, path: str) -> None:
    server = make_server()
    events = parts((await post(server, path, kv_hints=ENVELOPE, stream=True)).text)
    found = [(at, place) for at, event in enumerate(events) for place in places(event)]
    expected: dict[str, list[tuple[int, str]]] = {
        "/v1/messages": [(0, ".message.kv_hints")],
        "/v1/responses": [(at, ".response.kv_hints") for at in (0, 1, len(events) - 1)],
    }
    assert found == expected.get(path, [(0, ".kv_hints")])
    holder = events[0].get("message") or events[0].get("response") or events[0]
    assert holder["kv_hints"] == TOLD
    assert server.service.requests[0].hints == ASKED


@PATHS
@pytest.mark.parametrize("stream", [False, True])
async def test_only_who_asks_is_told(make_server: MakeServer, path: str, stream: bool) -> None:
    server = make_server()
    mark = {"type": "ephemeral", "ttl": "1h"}
    quiet: dict[str, Any] = (
        {"cache_control": mark} if path == "/v1/messages" else {"prompt_cache_options": {"ttl": "1h"}}
    )
    plain = await post(server, path, stream=stream)
    quietly = await post(server, path, stream=stream, **quiet)
    loudly = await post(server, path, stream=stream, nvext={"agent_hints": {"osl": 5}, "cache_control": mark})
    assert "kv_hints" not in plain.text and "kv_hints" not in quietly.text and "kv_hints" in loudly.text
    retain = (Hint("retain", 3600.0),)
    assert [request.hints for request in server.service.requests] == [(), retain, retain]


@PATHS
async def test_hints_change_no_prompt(make_server: MakeServer, path: str) -> None:
    server = make_server()
    await post(server, path)
    await post(server, path, kv_hints=ENVELOPE, nvext={"agent_hints": {"priority": 1}}, prompt_cache_retention="24h")
    first, second = server.service.requests
    assert first.token_ids == second.token_ids and first.keys == second.keys and first.root == second.root


@PATHS
async def test_refused_by_name(make_server: MakeServer, path: str) -> None:
    server = make_server()
    for fields, where in (
        ({"kv_hints": {"protocol_version": 9, "actions": []}}, "kv_hints.protocol_version"),
        ({"kv_hints": {"actions": [{"action": "retain", "ttl_s": -5}]}}, "kv_hints.actions[0].ttl_s"),
        ({"kv_hints": "retain"}, "kv_hints"),
        ({"nvext": {"agent_hints": {"priority": "x"}}}, "nvext.agent_hints.priority"),
    ):
        response = await server.post(path, {**BODIES[path], **fields})
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(f"{where}: must be ")
    number = json.dumps({**BODIES[path], "kv_hints": {"actions": [{"action": "retain", "ttl_s": 7}]}})
    for odd in ("NaN", "1e999"):
        response = await server.client.post(path, content=number.replace(": 7", f": {odd}").encode())
        assert response.status_code == 400
    assert not server.service.requests


async def test_one_of_several_choices_tells_the_engine(make_server: MakeServer) -> None:
    server = make_server(max_n=8)
    answer = (await post(server, "/v1/chat/completions", n=3, kv_hints=ENVELOPE)).json()
    assert answer["kv_hints"] == TOLD
    assert [request.hints for request in server.service.requests] == [ASKED, (), ()]
    answer = (await post(server, "/v1/completions", prompt=["a", "b"], n=2, kv_hints=ENVELOPE)).json()
    assert answer["kv_hints"] == TOLD and [bool(request.hints) for request in server.service.requests[3:]] == [
        True, False, False, False,
    ]  # fmt: skip
    for path, fields in (("/v1/completions", {"prompt": ["a", "b"], "n": 2}), ("/v1/chat/completions", {"n": 3})):
        text = (await post(server, path, kv_hints=ENVELOPE, stream=True, **fields)).text
        assert text.count("kv_hints") == 1


async def test_an_empty_envelope_is_answered(make_server: MakeServer) -> None:
    answer = (await post(make_server(), "/v1/chat/completions", kv_hints={"actions": []})).json()
    assert answer["kv_hints"] == {"message_id": None, "answers": []}


async def test_priorities(make_server: MakeServer) -> None:
    server = make_server()
    nvext = {"agent_hints": {"priority": 5}}
    await post(server, "/v1/chat/completions", nvext=nvext)
    await post(server, "/v1/chat/completions", nvext=nvext, priority=3)
    await post(server, "/v1/messages", nvext=nvext)
    assert [request.priority for request in server.service.requests] == [-5, 3, -5]
    assert {request.hints for request in server.service.requests} == {(Hint("priority", count=-5),)}


async def test_compaction_and_what_is_stored(make_server: MakeServer) -> None:
    server = make_server()
    answer = (await server.post("/v1/responses/compact", {"input": "Hi", "kv_hints": ENVELOPE})).json()
    assert answer["object"] == "response.compaction" and answer["kv_hints"] == TOLD
    answer = (await post(server, "/v1/responses", kv_hints=ENVELOPE)).json()
    assert (await server.client.get(f"/v1/responses/{answer['id']}")).json() == answer


async def test_a_sub_agent_has_its_own_session(make_server: MakeServer) -> None:
    server = make_server()
    claude = {"X-Claude-Code-Session-Id": "root"}
    for agent in (
        {},
        {"X-Claude-Code-Agent-Id": "a1"},
        {"X-Claude-Code-Agent-Id": "a2", "X-Claude-Code-Parent-Agent-Id": "a1"},
    ):
        await server.post("/v1/messages", BODIES["/v1/messages"], **claude, **agent)
    for thread in ({"thread-id": "t0"}, {"thread-id": "t1", "x-codex-parent-thread-id": "t0"}):
        body = {**BODIES["/v1/responses"], "prompt_cache_key": "t0"}
        await server.post("/v1/responses", body, **{"session-id": "t0"}, **thread)
    assert [(request.session_id, request.parent_session_id) for request in server.service.requests] == [
        ("root", ""), ("root/a1", "root"), ("root/a2", "root/a1"), ("t0", ""), ("t1", "t0"),
    ]  # fmt: skip
