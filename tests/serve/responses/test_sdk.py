"""The official client against the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
from openai import AsyncOpenAI, BadRequestError, NotFoundError
import pytest

from tests.serve.asgi import Server
from tests.serve.responses.conftest import CUSTOM, FUNCTION, THINKING, TOOLS, prompt

Says = Callable[..., Server]


@pytest.fixture
async def server(says: Says) -> AsyncIterator[Server]:
    yield says(THINKING, "Done.", "Bye.")


@pytest.fixture
async def sdk(server: Server) -> AsyncIterator[AsyncOpenAI]:
    transport = httpx.ASGITransport(app=server.app)
    async with AsyncOpenAI(
        api_key="none", base_url="http://test/v1", http_client=httpx.AsyncClient(transport=transport)
    ) as client:
        yield client


async def test_agent_loop(sdk: AsyncOpenAI, server: Server) -> None:
    first = await sdk.responses.create(model="m", input="Look.", tools=TOOLS)
    assert [item.type for item in first.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "custom_tool_call",
    ]
    assert first.output_text == "I will look."
    results = [{"type": f"{item.type}_output", "call_id": item.call_id, "output": "x"} for item in first.output[2:]]
    second = await sdk.responses.create(model="m", input=results, previous_response_id=first.id, tools=TOOLS)
    assert second.output_text == "Done." and second.usage is not None and second.usage.input_tokens_details is not None
    assert prompt(server).count("<tool_call>") == 3
    assert (await sdk.responses.retrieve(second.id)).output_text == "Done."
    items = await sdk.responses.input_items.list(second.id)
    assert [item.type for item in items.data] == [
        "custom_tool_call_output",
        "function_call_output",
        "function_call_output",
    ]
    await sdk.responses.delete(second.id)
    with pytest.raises(NotFoundError):
        await sdk.responses.retrieve(second.id)
    with pytest.raises(BadRequestError):
        await sdk.responses.cancel(first.id)


async def test_streaming_helper(sdk: AsyncOpenAI) -> None:
    """The SDK follows the events itself and compares."""
    text = ""
    async with sdk.responses.stream(model="m", input="Look.", tools=[FUNCTION, CUSTOM]) as events:
        async for event in events:
            if event.type == "response.output_text.delta":
                text += event.delta
        final = await events.get_final_response()
    assert text == final.output_text == "I will look."
    assert [item.type for item in final.output].count("function_call") == 2


async def test_history_as_items(sdk: AsyncOpenAI, server: Server) -> None:
    first = await sdk.responses.create(model="m", input="Look.", tools=TOOLS, store=False)
    history = [{"role": "user", "content": "Look."}, *first.output, {"role": "user", "content": "Well?"}]
    again = await sdk.responses.create(model="m", input=history, tools=TOOLS, store=False)
    assert again.output_text == "Done." and f"{THINKING}<|im_end|>" in prompt(server)


# The API's documentation has the user's messages in this list; the SDK's types have no word for them.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_compaction(sdk: AsyncOpenAI, server: Server) -> None:
    first = await sdk.responses.create(model="m", input="Look.")
    compacted = await sdk.responses.compact(model="m", previous_response_id=first.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    again = await sdk.responses.create(model="m", input=[*compacted.output, {"role": "user", "content": "Go on."}])
    assert again.output_text == "Bye." and "Done." in prompt(server)
