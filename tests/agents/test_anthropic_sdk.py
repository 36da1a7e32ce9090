"""The official `anthropic` package against a running server: Messages and count_tokens, as Claude Code uses them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from anthropic import Anthropic, BadRequestError
import pytest

from tests.agents import sdk
from tests.agents.server import Server, scripted_server

pytestmark = [pytest.mark.torch, pytest.mark.model]

TOOLS: Any = [{"name": "measure", "description": sdk.DESCRIPTION, "input_schema": sdk.SCHEMA}]


@pytest.fixture(scope="module")
def server(agent_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with scripted_server(agent_model, sdk.RULES, tmp_path_factory.mktemp("anthropic")) as running:
        yield running
    assert "Traceback" not in running.log.read_text()


@pytest.fixture
def client(server: Server) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def system_of(text: str) -> Any:
    return [{"type": "text", "text": f"{text}: {sdk.SYSTEM}", "cache_control": {"type": "ephemeral"}}]


def streamed(client: Anthropic, **body: Any) -> Any:
    with client.messages.stream(**body) as stream:
        events = list(stream)
        final = stream.get_final_message()
    starts = [event for event in events if event.type == "content_block_start"]
    assert [event.index for event in starts] == list(range(len(final.content)))
    assert next(event for event in events if event.type == "message_start").message.usage.input_tokens > 0
    return final


def read_tokens(usage: Any) -> int:
    """What a prompt has, however it is split."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


@pytest.mark.parametrize("stream", [False, True])
def test_tools(client: Anthropic, stream: bool) -> None:
    """Three turns; what each costs is what count_tokens says, and all full blocks of the one before are read."""
    messages: list[Any] = [{"role": "user", "content": sdk.QUESTION}]
    turns: list[Any] = []
    while not turns or turns[-1].stop_reason == "tool_use":
        body: dict[str, Any] = {
            "model": "tiny", "system": system_of(f"Messages {stream}"), "messages": messages, "tools": TOOLS,
        }  # fmt: skip
        counted = client.messages.count_tokens(**body).input_tokens
        ask = (lambda **body: streamed(client, **body)) if stream else client.messages.create
        answer = ask(**body, max_tokens=1000)
        assert counted == read_tokens(answer.usage)
        messages.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "96 degrees"}
            for block in answer.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
        turns.append(answer)
    inputs = [[block.input for block in turn.content if block.type == "tool_use"] for turn in turns]
    assert inputs == [[sdk.FIRST_CALL], list(sdk.NEXT_CALLS), []]
    assert turns[0].content[0].text.strip() == sdk.OPENING
    assert [block.text for block in turns[-1].content] == [sdk.ANSWER] and turns[-1].stop_reason == "end_turn"
    for before, after in pairwise(turns):
        expected = sdk.owed(read_tokens(after.usage), read_tokens(before.usage), before.usage.output_tokens)
        assert after.usage.cache_read_input_tokens == expected


def test_no_room_is_an_error_that_says_so(client: Anthropic) -> None:
    words = "tea " * 140_000
    with pytest.raises(BadRequestError) as caught:
        client.messages.create(model="tiny", max_tokens=10, messages=[{"role": "user", "content": words}])
    body: Any = caught.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert "131072" in body["error"]["message"]
