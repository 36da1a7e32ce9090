"""A template that shows everything a conversation has, of a model that thinks and writes Hermes calls."""

from __future__ import annotations

from collections.abc import Callable
import json
from typing import Any

import httpx
import pytest

from samovar.base.keys import unpack_tokens
from samovar.core.request import Request
from samovar.serve.config import StoreLimits
from samovar.serve.responses import routes
from samovar.serve.responses.store import ResponseStore
from samovar.text.template import ChatTemplate
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script

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
{% if reasoning_effort is defined %}[{{ reasoning_effort }}]{% endif %}{% endif %}"""

THINKING = (
    "<think>Look first.</think>I will look."
    '<tool_call>{"name": "ls", "arguments": {"path": "a", "all": true}}</tool_call>'
    '<tool_call>{"name": "mcp__git__log", "arguments": {}}</tool_call>'
    '<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin\\n+\\"a\\"\\n"}}</tool_call>'
)
FUNCTION = {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}, "strict": False}
CUSTOM = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
NAMESPACE = {
    "type": "namespace",
    "name": "mcp__git",
    "description": "Git.",
    "tools": [
        {"type": "function", "name": "log", "parameters": {"type": "object"}},
        {"type": "function", "name": "diff", "description": "Differences.", "parameters": {"type": "object"}},
    ],
}
HOSTED = {"type": "web_search", "external_web_access": False, "search_context_size": "low"}
TOOLS = [FUNCTION, CUSTOM, NAMESPACE, HOSTED]


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate({"default": TEMPLATE}, {})


@pytest.fixture
def make_server(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> MakeServer:
    """As everywhere; the server's `store` can be looked into."""
    made: list[ResponseStore] = []

    def make_store(limits: StoreLimits) -> ResponseStore:
        made.append(ResponseStore(limits))
        return made[-1]

    monkeypatch.setattr(routes, "ResponseStore", make_store)

    def make(*arguments: Any, **config: Any) -> Server:
        server = make_server(*arguments, **config)
        server.store = made[-1]
        return server

    return make


@pytest.fixture
def says(make_server: MakeServer) -> Callable[..., Server]:
    """A server whose n-th answer is the n-th text; the last one again and again."""

    def make(*texts: str, per_output: int = 1, delay_s: float = 0.0, **config: Any) -> Server:
        left = list(texts)

        def script(request: Request) -> Script:
            text = left.pop(0) if len(left) > 1 else left[0]
            return Script(ids(text, end=True), per_output=per_output, delay_s=delay_s)

        return make_server(script, **config)

    return make


async def respond(server: Server, input: Any = "Hi", **fields: Any) -> Any:
    response = await server.post("/v1/responses", {"input": input, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def stream(server: Server, input: Any = "Hi", **fields: Any) -> list[dict[str, Any]]:
    response = await server.post("/v1/responses", {"input": input, "stream": True, **fields})
    assert response.status_code == 200, response.text
    return events(response.text)


def events(text: str) -> list[dict[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def refusal(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def prompt(server: Server, at: int = -1) -> str:
    """The text of a request's prompt."""
    tokens = unpack_tokens(server.service.requests[at].token_ids)
    special = {256: "<|im_start|>", 257: "<|im_end|>", 258: "<|extra|>"}
    return b"".join(special[t].encode() if t in special else bytes([t]) for t in tokens).decode()
