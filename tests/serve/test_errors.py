"""What is refused, with which status; the message names field, value and limit. Never 422 or a traceback."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
import pytest

from samovar.base.errors import SamovarError, Saturated, error_classes
from samovar.core.request import Request
from samovar.serve.bodies import ChatBody, CompletionBody
from samovar.serve.errors import error_response
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}

CHAT_FAULTS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"messages": []}, "messages", ["at least one"]),
    ({"messages": None}, "messages", ["array"]),
    ({"messages": "Hi"}, "messages", ["array", "'Hi'"]),
    ({"messages": [3]}, "messages[0]", ["object", "3"]),
    ({"messages": [{"content": "x"}]}, "messages[0].role", ["user", "null"]),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", ["'wizard'"]),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role", ["user"]),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", ["string", "5"]),
    ({"messages": [*HI, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
     "messages[1].content[1]", ["'image_url'"]),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", ["null"]),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[0].tool_calls[0]", ["function"]),
    ({"n": 1000000}, "n", ["128", "1000000"]),
    ({"n": 0}, "n", ["1", "0"]),
    ({"n": True}, "n", ["integer", "true"]),
    ({"n": "1"}, "n", ["integer", "'1'"]),
    ({"n": 1.0}, "n", ["integer", "1.0"]),
    ({"max_tokens": 0}, "max_tokens", ["1", "0"]),
    ({"max_completion_tokens": -1}, "max_completion_tokens", ["-1"]),
    ({"min_tokens": 9, "max_tokens": 5}, "min_tokens", ["5", "9"]),
    ({"temperature": -0.1}, "temperature", ["0", "-0.1"]),
    ({"temperature": 2.5}, "temperature", ["2", "2.5"]),
    ({"temperature": "hot"}, "temperature", ["number", "'hot'"]),
    ({"top_p": 0}, "top_p", ["0"]),
    ({"top_p": 1.01}, "top_p", ["1", "1.01"]),
    ({"top_k": -2}, "top_k", ["-1", "-2"]),
    ({"min_p": 2}, "min_p", ["1", "2"]),
    ({"repetition_penalty": 0}, "repetition_penalty", ["0"]),
    ({"repetition_penalty": 1e-320}, "repetition_penalty", ["0.01", "1e-320"]),
    ({"min_tokens": 1, "stop_token_ids": list(range(259))}, "min_tokens", ["259"]),
    ({"min_tokens": 1, "stop_token_ids": [*range(256), 256, 258] * 2}, "min_tokens", ["259"]),
    ({"stop_token_ids": [1] * 1025}, "stop_token_ids", ["1024", "1025"]),
    ({"logit_bias": {str(key): 1 for key in range(1025)}}, "logit_bias", ["1024", "1025"]),
    ({"presence_penalty": 3}, "presence_penalty", ["2", "3"]),
    ({"frequency_penalty": -3}, "frequency_penalty", ["-2", "-3"]),
    ({"logit_bias": {"x": 1}}, "logit_bias", ["'x'"]),
    ({"logit_bias": {"259": 1}}, "logit_bias", ["259"]),
    ({"logit_bias": {"1": 101}}, "logit_bias.1", ["100", "101"]),
    ({"logit_bias": [1]}, "logit_bias", ["object", "[1]"]),
    ({"stop": ""}, "stop", ["''"]),
    ({"stop": ["a", ""]}, "stop[1]", ["''"]),
    ({"stop": ["a"] * 17}, "stop", ["16", "17"]),
    ({"stop": 5}, "stop", ["5"]),
    ({"stop": "a" * 1025}, "stop", ["1024", "1025"]),
    ({"stop_token_ids": [259]}, "stop_token_ids[0]", ["259"]),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]", ["-1"]),
    ({"top_logprobs": 2}, "top_logprobs", ["logprobs"]),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", ["20", "21"]),
    ({"logprobs": True, "top_logprobs": 2**31}, "top_logprobs", ["at most 20", str(2**31)]),
    ({"n": 2**300}, "n", ["at most 128", "256 bits"]),
    ({"response_format": "json"}, "response_format", ["an object", "'json'"]),
    ({"stream_options": [None]}, "stream_options", ["an object", "[null]"]),
    ({"messages": [None]}, "messages[0]", ["object", "null"]),
    ({"logprobs": 3}, "logprobs", ["3"]),
    ({"seed": 2**63}, "seed", [str(2**63)]),
    ({"seed": 1.5}, "seed", ["1.5"]),
    ({"priority": 2**31}, "priority", [str(2**31)]),
    ({"stream": "yes"}, "stream", ["'yes'"]),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", ["1"]),
    ({"model": ""}, "model", ["1"]),
    ({"cache_salt": ""}, "cache_salt", ["1"]),
    ({"session_id": "a\nb"}, "session_id", ["printable"]),
    ({"session_id": "a" * 257}, "session_id", ["256", "257"]),
    ({"parent_session_id": "a" * 10**6}, "parent_session_id", ["256", "1000000"]),
    ({"cache_salt": "a" * 257}, "cache_salt", ["at most 256 characters", "257"]),
    ({"request_id": "a b"}, "request_id", ["printable ASCII characters without spaces", "'a b'"]),
    ({"request_id": "a" * 129}, "request_id", ["128", "129"]),
    ({"tools": "x"}, "tools", ["array"]),
    ({"tools": [5]}, "tools[0]", ["object", "5"]),
    ({"tools": [{"type": "function", "function": {"name": "f"}}, {}]}, "tools[1].type", ["a string", "null"]),
    ({"tools": [{"name": "f", "input_schema": {}}]}, "tools[0].type", ["a string", "null"]),
    ({"tools": [{"type": 3}]}, "tools[0].type", ["3"]),
    ({"tools": [{"type": "function"}]}, "tools[0].function", ["object", "null"]),
    ({"tools": [{"type": "function", "function": "f"}]}, "tools[0].function", ["object", "'f'"]),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", ["null"]),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name", ["empty", "''"]),
    ({"tool_choice": "required"}, "tool_choice", ["no tools"]),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", ["no tools"]),
    ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice", ["name a function"]),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", ["'g'", "f"]),
    ({"tool_choice": "maybe"}, "tool_choice", ["'maybe'"]),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", ["an object with name and schema"]),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}},
        "response_format.json_schema.schema",
        ["an object"],
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "x"}}]}]},
        "messages[0].tool_calls[0].type",
        ["'function'", "'custom'"],
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"type": [], "function": {"name": "x"}}]}]},
        "messages[0].tool_calls[0].type",
        ["'function'", "[]"],
    ),
    ({"response_format": {"type": "poem"}}, "response_format.type", ["'poem'"]),
    ({"response_format": {}}, "response_format.type", ["required"]),
    ({"audio": {"voice": "x"}}, "audio", ["not supported yet"]),
    ({"modalities": ["text", "audio"]}, "modalities", ["not supported yet"]),
    ({"functions": []}, "functions", ["not supported yet"]),
    ({"best_of": 3}, "best_of", ["not supported yet", "3"]),
    ({"chat_template": "x"}, "chat_template", ["not supported yet"]),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", []),
    ({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message", []),
]  # fmt: skip

COMPLETION_FAULTS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"prompt": ""}, "prompt", ["at least one token"]),
    ({"prompt": []}, "prompt", ["empty"]),
    ({"prompt": [[]]}, "prompt[0]", ["empty"]),
    ({"prompt": ["a", ""]}, "prompt[1]", ["at least one token"]),
    ({"prompt": ["a", 1]}, "prompt[0]", ["'a'"]),
    ({"prompt": [1, True]}, "prompt[1]", ["true"]),
    ({"prompt": [1, 259]}, "prompt[1]", ["258", "259"]),
    ({"prompt": [[1], [-1]]}, "prompt[1][0]", ["-1"]),
    ({"prompt": {"a": 1}}, "prompt", ["string"]),
    ({"prompt": ["a"] * 1025}, "prompt", ["1024", "1025"]),
    ({"prompt": "a", "suffix": "b"}, "suffix", ["not supported yet"]),
    ({"prompt": "a", "echo": True, "logprobs": 1}, "logprobs", ["echo"]),
    ({"prompt": "a", "logprobs": 21}, "logprobs", ["20", "21"]),
    ({"prompt": "a", "logprobs": 2**31}, "logprobs", ["at most 20", str(2**31)]),
    ({"prompt": "a", "logprobs": True}, "logprobs", ["integer"]),
    ({}, "prompt", ["required"]),
]


async def refused(make_server: MakeServer, path: str, body: Any, param: str | None, words: list[str]) -> None:
    server = make_server()
    response = await server.post(path, body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param is None or error["message"].startswith(param.split(".")[0].split("[")[0]), error
    for word in words:
        assert word in error["message"], error
    assert not server.service.requests


@pytest.mark.parametrize(("fields", "param", "words"), CHAT_FAULTS)
async def test_chat_faults(make_server: MakeServer, fields: dict[str, Any], param: str, words: list[str]) -> None:
    await refused(make_server, "/v1/chat/completions", {"messages": HI, **fields}, param, words)


@pytest.mark.parametrize(("body", "param", "words"), COMPLETION_FAULTS)
async def test_completion_faults(make_server: MakeServer, body: dict[str, Any], param: str, words: list[str]) -> None:
    await refused(make_server, "/v1/completions", body, param, words)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", ["not valid JSON"]),
        (b"{", ["not valid JSON"]),
        (b"\xef\xbb\xbf{", ["not valid JSON", "column 2"]),
        (b'\xef\xbb\xbf{"prompt": "\xff"}', ["UTF-8", "0xff", "offset 15"]),
        (b"\xff\xfe{\x00", ["UTF-8", "0xff", "offset 0"]),
        (b"[]", ["object", "array"]),
        (b"null", ["object", "null"]),
        (b'{"prompt": "\xff"}', ["UTF-8", "0xff"]),
        (b'{"temperature": NaN}', ["NaN"]),
        (b'{"temperature": -Infinity}', ["-Infinity"]),
        (b'{"foo": [1e999]}', ["foo[0]", "finite"]),
        (b'{"seed": ' + b"9" * 5000 + b"}", ["digits"]),
        (b'{"foo": ' + b"[" * 200 + b"]" * 200 + b"}", ["nested", "128"]),
        (b'{"foo": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ["nested"]),
        (b'{"prompt": "a\\ud800b"}', ["prompt", "\\ud800", "character 1"]),
        (b'{"foo": {"bar": [{"x": "\\uDC00"}]}}', ["foo.bar[0].x", "\\udc00"]),
        (b'{"foo": {"\\uD801": 1}}', ["foo.", "\\ud801"]),
    ],
)
async def test_broken_bodies(make_server: MakeServer, raw: bytes, words: list[str]) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        response = await make_server().client.post(path, content=raw)
        assert response.status_code == 400, response.text
        for word in words:
            assert word in response.json()["error"]["message"]


@pytest.mark.parametrize("body", [ChatBody, CompletionBody])
def test_what_the_runner_walks_per_token_is_bounded(body: type[BaseModel]) -> None:
    """Every list of tokens and every map to numbers, a prompt apart."""
    schema = body.model_json_schema()
    del schema["properties"]["messages" if body is ChatBody else "prompt"]
    found = 0
    todo: list[Any] = [schema]
    while todo:
        node = todo.pop()
        todo.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else [])
        inner = node.get("items") or node.get("additionalProperties") if isinstance(node, dict) else None
        if isinstance(inner, dict) and inner.get("type") in ("integer", "number"):
            found += 1
            assert node.get("maxItems", node.get("maxProperties", 10**9)) <= 1024, node
    assert found == 2


async def test_the_whole_vocabulary_as_stops(make_server: MakeServer) -> None:
    """Fine while the first token may be one; masking all of them would leave nothing to sample."""
    server = make_server()
    every = list(range(259))
    assert (await server.chat(stop_token_ids=every)).status_code == 200
    assert (await server.chat(stop_token_ids=every, min_tokens=0)).status_code == 200
    assert (await server.chat(stop_token_ids=every[:-1], ignore_eos=True, min_tokens=1)).status_code == 200
    assert (await server.chat(stop_token_ids=[*every[:257], 258], min_tokens=1)).status_code == 400


async def test_pairs_are_no_lone_surrogates(make_server: MakeServer) -> None:
    raw = b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}'
    response = await make_server().client.post("/v1/chat/completions", content=raw)
    assert response.status_code == 200


async def test_a_byte_order_mark_is_passed_over(make_server: MakeServer) -> None:
    response = await make_server().client.post("/v1/completions", content=b'\xef\xbb\xbf{"prompt": "Hi"}')
    assert response.status_code == 200


async def test_context(make_server: MakeServer) -> None:
    """Only a prompt that leaves no room is refused; max_tokens is clamped."""
    server = make_server(Script(ids("a" * 100)))
    response = await server.complete([65] * 5000)
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == "prompt"
    assert "5000" in error["message"] and "4096" in error["message"]
    assert (await server.complete([65] * 4096)).status_code == 400
    response = await server.complete([65] * 4090, max_tokens=32000, min_tokens=30)
    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] == 6
    assert response.json()["choices"][0]["finish_reason"] == "length"
    params = server.service.requests[-1].sampling
    assert (params.max_tokens, params.min_tokens) == (6, 6)
    assert (await server.chat("a" * 5000)).json()["error"]["param"] == "messages"


async def test_unknown_model(make_server: MakeServer) -> None:
    server = make_server(served_model_names=("tea", "coffee"))
    response = await server.chat(model="milk")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found" and "milk" in response.json()["error"]["message"]
    assert (await server.chat(model="coffee")).json()["model"] == "coffee"
    assert (await server.chat()).json()["model"] == "tea"


async def test_saturated(make_server: MakeServer) -> None:
    """A refusal has its status and Retry-After, even for a stream; the siblings of a refused choice are ended."""

    def script(request: Request) -> Script:
        refusal = Saturated("too many", retry_after_s=2.4) if request.sampling.seed == 8 else None
        return Script(ids("abc"), verdict_s=0.01 * (request.sampling.seed - 6), refusal=refusal)

    server = make_server(script)
    for stream in (False, True):
        response = await server.chat(n=3, seed=7, stream=stream)
        assert response.status_code == 429 and response.headers["retry-after"] == "3"
        assert response.json()["error"] == {
            "message": "too many", "type": "rate_limit_error", "param": None, "code": "saturated",
        }  # fmt: skip
    assert [request_id for request_id, _ in server.service.finished] == [1, 3, 4, 6]
    assert not server.service.open


async def test_dead_engine(make_server: MakeServer) -> None:
    server = make_server()
    assert (await server.client.get("/health")).status_code == 200
    server.service.die("exit code -9")
    for response in (await server.client.get("/health"), await server.chat(), await server.chat(stream=True)):
        assert response.status_code == 503 and response.json()["error"]["code"] == "engine_dead"
        assert "retry-after" in response.headers
    assert (await server.client.get("/metrics")).status_code == 200


async def test_draining(make_server: MakeServer) -> None:
    server = make_server()
    server.drain.begin()
    response = await server.chat()
    assert response.status_code == 503 and response.json()["error"]["code"] == "draining"
    assert int(response.headers["retry-after"]) == 30
    assert (await server.client.get("/health")).status_code == 503


async def test_unknown_paths_and_methods(make_server: MakeServer) -> None:
    client = make_server().client
    response = await client.get("/v1/nothing")
    assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"
    response = await client.get("/v1/completions")
    assert response.status_code == 405 and response.headers["allow"] == "POST"
    assert response.json()["error"]["code"] == "method_not_allowed"


async def test_a_bug_shows_nothing(make_server: MakeServer) -> None:
    def script(request: Request) -> Script:
        raise ZeroDivisionError("secret")

    server = make_server(script)
    server.client._transport.raise_app_exceptions = False  # type: ignore[attr-defined]
    response = await server.chat()
    assert response.status_code == 500 and "secret" not in response.text and "Zero" not in response.text
    assert response.json()["error"]["code"] == "internal_error"


@pytest.mark.parametrize("cls", error_classes().values())
def test_every_error_has_an_answer(cls: type[SamovarError]) -> None:
    response = error_response(cls("m", param="p", retry_after_s=0.2))
    error = json.loads(bytes(response.body))["error"]
    assert response.status_code == cls.status and error["code"] == cls.code and error["param"] == "p"
    assert ("retry-after" in response.headers) == (cls.status in (429, 503))
