"""cache_control in a Messages body: the longest time counts, wherever it stands, and the prompt never sees it."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.policy.hints import Hint
from tests.serve.anthropic.conftest import ask
from tests.serve.asgi import Server

SHORT = {"cache_control": {"type": "ephemeral"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}
CALL = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}


def body(**marks: dict[str, Any]) -> dict[str, Any]:
    """With a mark at each of these places; SHORT on the question."""
    result = {"type": "text", "text": "x", **marks.get("deep", {})}
    return {
        "system": [{"type": "text", "text": "Be brief.", **marks.get("system", {})}],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}, **marks.get("tool", {})}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", **SHORT}]},
            {"role": "assistant", "content": [{**CALL, **marks.get("call", {})}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [result], **marks.get("result", {})}
                ],
            },
        ],
        **marks.get("body", {}),
    }


PLACES = {
    "system": "system[0].cache_control",
    "tool": "tools[0].cache_control",
    "call": "messages[1].content[0].cache_control",
    "result": "messages[2].content[0].cache_control",
    "deep": "messages[2].content[0].content[0].cache_control",
    "body": "cache_control",
}


@pytest.mark.parametrize("place", PLACES)
async def test_the_longest_wins(server: Server, place: str) -> None:
    await ask(server, **body())
    await ask(server, **body(**{place: LONG}))
    first, second = server.service.requests
    assert (first.hints, second.hints) == ((Hint("retain", 300.0),), (Hint("retain", 3600.0),))
    assert first.token_ids == second.token_ids and first.keys == second.keys


async def test_none_at_all(server: Server) -> None:
    await ask(server)
    await ask(server, messages=[{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": None}]}])
    assert [request.hints for request in server.service.requests] == [(), ()]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("mark", "where"),
    [
        ("yes", ""),
        ([], ""),
        ({}, ".type"),
        ({"type": "lasting"}, ".type"),
        ({"type": "ephemeral", "ttl": "1 h"}, ".ttl"),
    ],
)
async def test_what_is_no_mark(server: Server, place: str, mark: Any, where: str) -> None:
    response = await ask(server, **body(**{place: {"cache_control": mark}}))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"{PLACES[place]}{where}: must be ")
    assert not server.service.requests


async def test_counting_does_not_look_at_them(server: Server) -> None:
    response = await server.post("/v1/messages/count_tokens", body(system={"cache_control": "yes"}))
    assert response.status_code == 200
