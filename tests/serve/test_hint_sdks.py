"""Hints through the official packages: they go out in `extra_body`, and one field more in an answer breaks nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
from openai import AsyncOpenAI
import pytest

from tests.serve.asgi import Server
from tests.serve.conftest import ANSWER, MakeServer, ids
from tests.serve.scripted import Script

MESSAGES: Any = [{"role": "user", "content": "Hi"}]
HINTS = {"kv_hints": {"message_id": "m", "actions": [{"action": "retain", "ttl_s": 60}]}, "session_id": "s"}
TOLD = {"message_id": "m", "answers": [{"action": "retain", "status": "applied", "reason": ""}]}


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    return make_server(Script(ids(ANSWER, end=True), per_output=3, delay_s=0.001))


@pytest.fixture
async def openai(server: Server) -> AsyncIterator[AsyncOpenAI]:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=server.app))
    async with AsyncOpenAI(api_key="none", base_url="http://test/v1", http_client=http, max_retries=0) as client:
        yield client


async def test_chat_completions(openai: AsyncOpenAI) -> None:
    whole = await openai.chat.completions.create(model="m", messages=MESSAGES, extra_body=HINTS)
    assert whole.choices[0].message.content == ANSWER and whole.model_extra == {"kv_hints": TOLD}
    async with openai.chat.completions.stream(model="m", messages=MESSAGES, extra_body=HINTS) as stream:
        chunks = [event.chunk async for event in stream if event.type == "chunk"]
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == ANSWER and final.choices[0].finish_reason == "stop"
    assert [chunk.model_extra or {} for chunk in chunks] == [{"kv_hints": TOLD}, *[{}] * (len(chunks) - 1)]
    assert all(len(chunk.choices) == 1 for chunk in chunks), "no chunk only for hints"


async def test_completions(openai: AsyncOpenAI) -> None:
    whole = await openai.completions.create(model="m", prompt="Hi", extra_body=HINTS)
    assert whole.choices[0].text == ANSWER and whole.model_extra == {"kv_hints": TOLD}
    chunks = [
        chunk async for chunk in await openai.completions.create(model="m", prompt="Hi", stream=True, extra_body=HINTS)
    ]
    assert "".join(chunk.choices[0].text for chunk in chunks) == ANSWER
    assert [chunk.model_extra or {} for chunk in chunks] == [{"kv_hints": TOLD}, *[{}] * (len(chunks) - 1)]


async def test_responses(openai: AsyncOpenAI) -> None:
    whole = await openai.responses.create(model="m", input="Hi", extra_body=HINTS, prompt_cache_retention="24h")
    assert whole.output_text == ANSWER and whole.model_extra is not None
    implied = {"action": "prompt_cache_retention", "status": "applied", "reason": ""}
    assert whole.model_extra["kv_hints"] == {**TOLD, "answers": [*TOLD["answers"], implied]}
    async with openai.responses.stream(model="m", input="Hi", extra_body=HINTS) as stream:
        created = await anext(stream)
        final = await stream.get_final_response()
    assert final.output_text == ANSWER and final.model_extra is not None and final.model_extra["kv_hints"] == TOLD
    assert created.type == "response.created" and (created.response.model_extra or {})["kv_hints"] == TOLD


async def test_messages(server: Server) -> None:
    anthropic = pytest.importorskip("anthropic")
    httpx2 = pytest.importorskip("httpx2")
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=server.app), base_url="http://test")
    async with anthropic.AsyncAnthropic(api_key="k", base_url="http://test", http_client=http, max_retries=0) as client:
        body = {"model": "m", "max_tokens": 100, "messages": MESSAGES, "extra_body": HINTS}
        whole = await client.messages.create(**body)
        assert whole.content[0].text == ANSWER and whole.model_extra == {"kv_hints": TOLD}
        async with client.messages.stream(**body) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_message()
        assert final.content[0].text == ANSWER and final.stop_reason == "end_turn"
        assert final.model_extra == {"kv_hints": TOLD}
        assert events[0].type == "message_start" and events[0].message.model_extra == {"kv_hints": TOLD}
