"""Answers and events against the types of the official package, and its client against the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.serve.anthropic.conftest import ask, events_of
from tests.serve.anthropic.test_messages import CALLS, CONTENT, LS, without
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script

anthropic = pytest.importorskip("anthropic")
httpx2 = pytest.importorskip("httpx2")

ANSWER = Script(ids(f"<think>Let me see.</think>{CALLS}", end=True), per_output=3, delay_s=0.0002)
MESSAGES = [{"role": "user", "content": "Hi"}]

MakeClient = Callable[..., Awaitable[Any]]


@pytest.fixture
async def client_of() -> AsyncIterator[MakeClient]:
    opened = []

    async def make(server: Server) -> Any:
        transport = httpx2.ASGITransport(app=server.app)
        http = httpx2.AsyncClient(transport=transport, base_url="http://test")
        client = anthropic.AsyncAnthropic(api_key="key", base_url="http://test", http_client=http, max_retries=0)
        opened.append(client)
        return client

    yield make
    for client in opened:
        await client.close()


def strict(model: Any, value: dict[str, Any]) -> Any:
    """Validated, and with nothing in it that the type does not know."""
    found = model.model_validate(value)
    assert not found.model_extra
    return found


async def test_types(make_server: MakeServer) -> None:
    from anthropic.types import Message, RawMessageStreamEvent
    from anthropic.types.shared import ErrorResponse
    from pydantic import TypeAdapter

    server = make_server(ANSWER)
    strict(Message, (await ask(server, tools=[LS])).json())
    events = events_of((await ask(server, tools=[LS], stream=True)).text)
    adapter = TypeAdapter(RawMessageStreamEvent)
    for event in events:
        if event["type"] != "ping":
            found = adapter.validate_python(event)
            assert found.type == event["type"] and not found.model_extra
    for fields in ({"max_tokens": -1}, {"model": ""}):
        assert strict(ErrorResponse, (await ask(server, **fields)).json()).error.message


async def test_client(make_server: MakeServer, client_of: MakeClient) -> None:
    client = await client_of(make_server(ANSWER))
    message = await client.messages.create(model="x", max_tokens=900, messages=MESSAGES, tools=[LS])
    assert without([block.model_dump(exclude_none=True) for block in message.content[1:]], "id") == CONTENT
    assert message._request_id == message.id.removeprefix("msg_")


async def test_client_streams(make_server: MakeServer, client_of: MakeClient) -> None:
    client = await client_of(make_server(ANSWER))
    async with client.messages.stream(model="x", max_tokens=900, messages=MESSAGES, tools=[LS]) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert "".join(texts) == "Two looks." and message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[0].signature
    assert [block.input for block in message.content[2:]] == [block["input"] for block in CONTENT[1:]]
    assert message.usage.output_tokens > 100

    # What it got is what it can send back.
    turn = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "x"}
        for block in message.content
        if block.type == "tool_use"
    ]
    more = [*MESSAGES, turn, {"role": "user", "content": results}]
    counted = await client.messages.count_tokens(model="x", messages=more, tools=[LS])
    again = await client.beta.messages.create(model="x", max_tokens=5, messages=more, tools=[LS], betas=["new-2026"])
    assert counted.input_tokens == again.usage.input_tokens + again.usage.cache_read_input_tokens


async def test_client_errors(make_server: MakeServer, client_of: MakeClient) -> None:
    client = await client_of(make_server(served_model_names=("tea",)))
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.create(model="coffee", max_tokens=5, messages=MESSAGES)
    assert caught.value.body["error"]["type"] == "not_found_error" and caught.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        await client.messages.create(model="tea", max_tokens=5, messages=[{"role": "user", "content": "x" * 9000}])
    client = await client_of(make_server(Script(ids("abcdef"), error_after=3)))
    with pytest.raises(anthropic.APIStatusError) as caught:
        async with client.messages.stream(model="x", max_tokens=5, messages=MESSAGES) as stream:
            async for _ in stream:
                pass
    assert caught.value.body["error"]["type"] == "api_error"
