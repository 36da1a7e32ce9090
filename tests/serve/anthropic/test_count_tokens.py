"""POST /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer

TOOLS = [{"name": "ls", "description": "Lists.", "input_schema": {"type": "object"}}]
CALL = {"type": "tool_use", "id": "t", "name": "ls", "input": {"path": "a"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
CONVERSATION = {
    "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
    "tools": TOOLS,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "messages": [
        {"role": "user", "content": "List"},
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "I look."}, CALL]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x" * 200}]},
    ],
}
PREFILL = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It is"}]}


@pytest.mark.parametrize("body", [CONVERSATION, PREFILL])
async def test_equals_the_usage_of_the_call(server: Server, body: dict[str, Any]) -> None:
    response = await server.post("/v1/messages/count_tokens?beta=true", {"model": "x", **body})
    assert response.status_code == 200 and response.headers["request-id"]
    assert not server.service.requests
    for _ in range(2):
        usage = (await server.post("/v1/messages", {"model": "x", "max_tokens": 5, **body})).json()["usage"]
        inputs = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert response.json() == {"input_tokens": sum(usage[key] for key in inputs)}
    assert usage["cache_read_input_tokens"] or body is PREFILL


async def test_more_than_the_context(server: Server) -> None:
    """So that a client sees it coming."""
    messages = [{"role": "user", "content": "x" * 100_000}]
    response = await server.post("/v1/messages/count_tokens", {"messages": messages})
    assert response.status_code == 200 and response.json()["input_tokens"] > 100_000


async def test_faults(make_server: MakeServer) -> None:
    server = make_server(served_model_names=("tea",), api_keys=("key",))
    path, hi = "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}
    assert (await server.post(path, hi)).status_code == 401
    response = await server.client.post(path, json={**hi, "model": "coffee"}, headers={"x-api-key": "key"})
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
    response = await server.client.post(path, json={"model": "tea"}, headers={"authorization": "Bearer key"})
    assert (response.status_code, response.json()["error"]["message"]) == (400, "messages: this field is required.")
