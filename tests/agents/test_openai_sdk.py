"""The official `openai` package against a running server: chat completions and Responses, as agents use them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
import json
from typing import Any

from openai import OpenAI
from pydantic import BaseModel
import pytest

from tests.agents import sdk
from tests.agents.server import Server, scripted_server

pytestmark = [pytest.mark.torch, pytest.mark.model]

TOOL: dict[str, Any] = {"name": "measure", "description": sdk.DESCRIPTION, "parameters": sdk.SCHEMA}
CHAT_TOOLS: Any = [{"type": "function", "function": TOOL}]
RESPONSE_TOOLS: Any = [{"type": "function", "strict": False, **TOOL}]


class Recipe(BaseModel):
    name: str
    minutes: int


@pytest.fixture(scope="module")
def server(agent_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with scripted_server(agent_model, sdk.RULES, tmp_path_factory.mktemp("openai")) as running:
        yield running
    assert "Traceback" not in running.log.read_text()


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def arguments(calls: Any) -> list[dict[str, Any]]:
    assert all(call.function.name == "measure" for call in calls)
    return [json.loads(call.function.arguments) for call in calls]


def streamed(client: OpenAI, messages: list[Any]) -> Any:
    with client.chat.completions.stream(
        model="tiny", messages=messages, tools=CHAT_TOOLS, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


@pytest.mark.parametrize("stream", [False, True])
def test_chat_with_tools(client: OpenAI, stream: bool) -> None:
    """Text and a call, two calls at once, the answer. What was generated is in the cache too, though its ids are not
    what its text would encode to."""
    messages: list[Any] = [
        {"role": "system", "content": f"{stream}: {sdk.SYSTEM}"},
        {"role": "user", "content": sdk.QUESTION},
    ]
    turns: list[Any] = []
    while not turns or turns[-1].choices[0].finish_reason == "tool_calls":
        answer = (
            streamed(client, messages)
            if stream
            else client.chat.completions.create(model="tiny", messages=messages, tools=CHAT_TOOLS)
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "96 degrees"} for call in message.tool_calls or ()
        ]
        turns.append(answer)
    first, second, last = (turn.choices[0].message for turn in turns)
    assert first.content.strip() == sdk.OPENING and arguments(first.tool_calls) == [sdk.FIRST_CALL]
    assert not (second.content or "").strip() and arguments(second.tool_calls) == list(sdk.NEXT_CALLS)
    assert last.content == sdk.ANSWER and not last.tool_calls
    assert turns[-1].choices[0].finish_reason == "stop"
    assert len({call.id for call in (*first.tool_calls, *second.tool_calls)}) == 3
    for before, after in pairwise(turns):
        expected = sdk.owed(after.usage.prompt_tokens, before.usage.prompt_tokens, before.usage.completion_tokens)
        assert after.usage.prompt_tokens_details.cached_tokens == expected


def test_chat_structured(client: OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tiny", messages=[{"role": "user", "content": "A recipe, please."}], response_format=Recipe
    )
    assert answer.choices[0].message.parsed == Recipe(**sdk.RECIPE)


def test_tool_choice(client: OpenAI) -> None:
    """Whatever the model would rather say."""
    question: Any = [{"role": "user", "content": "Just say All right."}]
    ask = client.chat.completions.create
    free = ask(model="tiny", messages=question, tools=CHAT_TOOLS)
    assert free.choices[0].message.content == "All right."
    messages: Any = [{"role": "user", "content": sdk.QUESTION}]
    none = ask(model="tiny", messages=messages, tools=CHAT_TOOLS, tool_choice="none")
    assert none.choices[0].message.tool_calls is None and none.choices[0].finish_reason == "stop"


def response_turns(client: OpenAI, system: str, **fields: Any) -> list[Any]:
    """Each turn names the one before; only tool results are sent."""
    turns: list[Any] = []
    sent: Any = [{"role": "user", "content": sdk.QUESTION}]
    while sent:
        fields["previous_response_id"] = turns[-1].id if turns else None
        answer = client.responses.create(model="tiny", instructions=system, input=sent, tools=RESPONSE_TOOLS, **fields)
        if fields.get("stream"):
            answer = whole(list(answer))
        turns.append(answer)
        sent = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "96 degrees"}
            for item in answer.output
            if item.type == "function_call"
        ]
    return turns


def whole(events: list[Any]) -> Any:
    """The response of a stream whose events agree with each other."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    added = [event.item for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in added] == [item.id for item in done]
    final = events[-1].response
    assert [item.model_dump() for item in final.output] == [item.model_dump() for item in done]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == final.output_text
    for item in done:
        if item.type == "function_call":
            parts = [
                event.delta
                for event in events
                if event.type == "response.function_call_arguments.delta" and event.item_id == item.id
            ]
            assert "".join(parts) == item.arguments
    return final


@pytest.mark.parametrize("stream", [False, True])
def test_responses_with_tools(client: OpenAI, stream: bool) -> None:
    turns = response_turns(client, f"Responses {stream}: {sdk.SYSTEM}", stream=stream)
    assert [turn.status for turn in turns] == ["completed"] * 3
    calls = [[json.loads(item.arguments) for item in turn.output if item.type == "function_call"] for turn in turns]
    assert calls == [[sdk.FIRST_CALL], list(sdk.NEXT_CALLS), []]
    assert turns[0].output_text.strip() == sdk.OPENING and turns[-1].output_text == sdk.ANSWER
    for before, after in pairwise(turns):
        expected = sdk.owed(after.usage.input_tokens, before.usage.input_tokens, before.usage.output_tokens)
        assert after.usage.input_tokens_details.cached_tokens == expected
    kept = client.responses.retrieve(turns[-1].id)
    assert kept.output_text == sdk.ANSWER


def test_responses_structured(client: OpenAI) -> None:
    answer = client.responses.parse(model="tiny", input="A recipe, please.", text_format=Recipe)
    assert answer.output_parsed == Recipe(**sdk.RECIPE)
