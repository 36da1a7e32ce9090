"""Anthropic's cache_control in chat completions, as gateways send it: a retain hint, and nothing in the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.policy.hints import Hint
from tests.serve.asgi import Server

LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
PLACES = {
    "system": "messages[0].content[0].cache_control",
    "message": "messages[1].cache_control",
    "part": "messages[1].content[0].cache_control",
    "tool": "tools[0].cache_control",
    "body": "cache_control",
}


def body(**marks: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "ls", "parameters": {"type": "object", "properties": {}}}
    return {
        "model": "tea",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief.", **marks.get("system", {})}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hi", **marks.get("part", {})}],
                **marks.get("message", {}),
            },
        ],
        "tools": [{"type": "function", "function": function, **marks.get("tool", {})}],
        **marks.get("body", {}),
    }


@pytest.mark.parametrize("place", PLACES)
async def test_a_mark_is_a_hint_and_not_in_the_prompt(server: Server, place: str) -> None:
    assert (await server.post("/v1/chat/completions", body())).status_code == 200
    assert (await server.post("/v1/chat/completions", body(**{place: LONG}))).status_code == 200
    without, marked = server.service.requests
    assert (without.hints, marked.hints) == ((), (Hint("retain", 3600.0),))
    assert without.token_ids == marked.token_ids and without.keys == marked.keys


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("mark", "where"),
    [("yes", ""), ({"type": "nope"}, ".type"), ({"type": "ephemeral", "ttl": "junk"}, ".ttl")],
)
async def test_what_is_no_mark(server: Server, place: str, mark: Any, where: str) -> None:
    response = await server.post("/v1/chat/completions", body(**{place: {"cache_control": mark}}))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"{PLACES[place]}{where}: must be ")
    assert not server.service.requests
