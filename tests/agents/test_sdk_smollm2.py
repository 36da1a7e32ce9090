"""Both SDKs against a real model: what must hold whatever it says."""

from __future__ import annotations

from collections.abc import Iterator
import json
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from openai import OpenAI
from pydantic import BaseModel
import pytest

from tests.agents import sdk
from tests.agents.server import Server, model_server

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

TOOL: dict[str, Any] = {"name": "measure", "description": sdk.DESCRIPTION, "parameters": sdk.SCHEMA}
CHAT_TOOLS: Any = [{"type": "function", "function": TOOL}]
MESSAGES_TOOLS: Any = [{"name": "measure", "description": sdk.DESCRIPTION, "input_schema": sdk.SCHEMA}]
QUESTION: Any = [{"role": "user", "content": "How warm is the kettle?"}]


class Recipe(BaseModel):
    name: str
    minutes: int
    steps: list[str]


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with model_server(smollm2_gguf, tmp_path_factory.mktemp("smollm2")) as running:
        yield running
    assert "Traceback" not in running.log.read_text()


@pytest.fixture
def openai(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made


@pytest.fixture
def anthropic(server: Server) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120) as made:
        yield made


def fits(arguments: dict[str, Any]) -> bool:
    """SCHEMA, by hand."""
    return isinstance(arguments["vessel"], str) and arguments.get("unit", "C") in ("C", "F")


def test_structured(openai: OpenAI) -> None:
    """SmolLM2 seldom writes JSON by itself."""
    question: Any = [{"role": "user", "content": "A short recipe for masala chai."}]
    chat = openai.chat.completions.parse(
        model="any", messages=question, response_format=Recipe, max_tokens=400, temperature=0
    )
    assert chat.choices[0].message.parsed is not None
    response = openai.responses.parse(
        model="any", input=question[0]["content"], text_format=Recipe, max_output_tokens=400, temperature=0
    )
    assert response.output_parsed is not None


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "measure"}}])
def test_required_call(openai: OpenAI, choice: Any) -> None:
    answer = openai.chat.completions.create(
        model="any",
        messages=QUESTION,
        tools=CHAT_TOOLS,
        tool_choice=choice,
        parallel_tool_calls=False,
        max_tokens=200,
        temperature=0,
    )
    calls: Any = answer.choices[0].message.tool_calls
    assert len(calls) == 1 and fits(json.loads(calls[0].function.arguments))


def test_required_call_of_messages(anthropic: Anthropic) -> None:
    body: dict[str, Any] = {"model": "any", "messages": QUESTION, "tools": MESSAGES_TOOLS}
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    answer = anthropic.messages.create(**body, tool_choice=choice, max_tokens=200, extra_body={"temperature": 0})
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and len(calls) == 1 and fits(dict(calls[0].input))


def test_count_tokens(anthropic: Anthropic) -> None:
    body: dict[str, Any] = {
        "model": "any",
        "system": [{"type": "text", "text": "You pour tea."}, {"type": "text", "text": "Always."}],
        "tools": MESSAGES_TOOLS,
        "messages": [
            *QUESTION,
            {"role": "assistant", "content": "I do not know."},
            {"role": "user", "content": "Ask."},
        ],
    }
    usage = anthropic.messages.create(**body, max_tokens=1).usage
    read = usage.cache_read_input_tokens or 0
    assert anthropic.messages.count_tokens(**body).input_tokens == usage.input_tokens + read


def test_previous_response(openai: OpenAI) -> None:
    """The second turn sends one line and finds the whole of the first."""
    first = openai.responses.create(model="any", input=f"{sdk.SYSTEM} Say something of tea.", max_output_tokens=40)
    second = openai.responses.create(
        model="any", input="And of coffee.", previous_response_id=first.id, max_output_tokens=5
    )
    assert first.usage is not None and second.usage is not None
    # Cut off at its limit, the first answer has no KV for its last token.
    expected = sdk.owed(second.usage.input_tokens, first.usage.input_tokens, first.usage.output_tokens)
    assert second.usage.input_tokens_details.cached_tokens == expected
