"""A template that shows all that a conversation has. By its looks, answers are read as Hermes, with thoughts first."""

from __future__ import annotations

from collections.abc import Iterator
import json
from typing import Any

import httpx
import pytest

from samovar.base.keys import unpack_tokens
from samovar.text.template import ChatTemplate
from tests.serve.asgi import Server
from tests.serve.conftest import END, EXTRA, START

TEMPLATE = """\
{%- if tools %}{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}{% endif %}
{%- for message in messages -%}
<|im_start|>{{ message.role }}{% if message.name %} {{ message.name }}{% endif %}{{ "\n" }}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined %}[{{ enable_thinking }}]{% endif %}{% endif %}"""


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate({"default": TEMPLATE}, {})


async def ask(server: Server, content: Any = "Hi", **fields: Any) -> httpx.Response:
    messages = fields.pop("messages", None) or [{"role": "user", "content": content}]
    body = {"model": "tea", "max_tokens": 1000, "messages": messages, **fields}
    return await server.post("/v1/messages?beta=true", {name: value for name, value in body.items() if value != "omit"})


def prompt_of(server: Server) -> str:
    """The last prompt that the engine got."""
    names = {START: b"<|im_start|>", END: b"<|im_end|>", EXTRA: b"<|extra|>"}
    tokens = unpack_tokens(server.service.requests[-1].token_ids)
    return b"".join(names.get(token) or bytes([token]) for token in tokens).decode()


def events_of(text: str) -> list[dict[str, Any]]:
    """The data of every event, each under its own name."""
    return list(_events_of(text))


def _events_of(text: str) -> Iterator[dict[str, Any]]:
    assert text.endswith("\n\n")
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


def fold(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream; checks its order. Independent of how the server makes whole answers."""
    events = [event for event in events if event["type"] != "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert events[0]["type"] == "message_start"
    message = events[0]["message"]
    assert message["content"] == [] and message["stop_reason"] is None
    open_at = None
    texts: list[str] = []
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert open_at is None and event["index"] == len(message["content"])
            open_at = event["index"]
            message["content"].append(event["content_block"])
            texts = []
            continue
        assert event["index"] == open_at
        block = message["content"][-1]
        if event["type"] == "content_block_stop":
            open_at = None
            if block["type"] == "tool_use":
                block["input"] = json.loads("".join(texts))
            continue
        delta = event["delta"]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] += delta["signature"]
            case "input_json_delta":
                texts.append(delta["partial_json"])
    assert open_at is None
    ending = events[-2]
    return {**message, **ending["delta"], "usage": {**message["usage"], **ending["usage"]}}
