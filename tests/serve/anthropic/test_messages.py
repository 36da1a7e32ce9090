"""POST /v1/messages: answers, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.serve.anthropic.conftest import ask, events_of, fold, prompt_of
from tests.serve.asgi import Server
from tests.serve.conftest import ANSWER, END, EXTRA, MakeServer, ids
from tests.serve.scripted import BLOCK, Script

LS = {"name": "ls", "input_schema": {"type": "object", "properties": {}}}
CALLS = (
    'Two looks.\n<tool_call>{"name": "ls", "arguments": {"path": "a, }b", "deep": [1, {"x": "\\"é😀"}]}}</tool_call>\n'
    '<tool_call>{"name": "ls", "arguments": {}}</tool_call>'
)
CONTENT = [
    {"type": "text", "text": "Two looks."},
    {"type": "tool_use", "name": "ls", "input": {"path": "a, }b", "deep": [1, {"x": '"é😀'}]}},
    {"type": "tool_use", "name": "ls", "input": {}},
]


def without(content: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key not in keys} for block in content]


async def test_whole_answer(server: Server) -> None:
    response = await ask(server, model="claude-x")
    assert response.status_code == 200
    answer = response.json()
    assert answer["id"] == f"msg_{response.headers['request-id']}"
    assert response.headers["request-id"] == response.headers["x-request-id"]
    prompt = len(server.service.requests[0].token_ids) // 4
    assert answer == {
        "id": answer["id"],
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": ANSWER}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": len(ids(ANSWER)) + 1,
        },
    }


async def test_stream(make_server: MakeServer) -> None:
    server = make_server(Script(ids(ANSWER, end=True), per_output=3, delay_s=0.001))
    response = await ask(server, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["request-id"]
    events = events_of(response.text)
    assert [event["type"] for event in events[:3]] == ["message_start", "ping", "content_block_start"]
    assert sum(event["type"] == "content_block_delta" for event in events) > 2
    whole = (await ask(make_server())).json()
    streamed = fold(events)
    assert {**streamed, "id": None} == {**whole, "id": None}


async def test_settings_reach_the_engine(make_server: MakeServer) -> None:
    server = make_server()
    user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": "6a83eb1d"})
    await ask(server, max_tokens=7, temperature=0.5, top_p=0.9, top_k=4, seed=3, metadata={"user_id": user}, priority=2)
    request = server.service.requests[0]
    params = request.sampling
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k, params.seed) == (7, 0.5, 0.9, 4, 3)
    assert (request.session_id, request.priority) == ("6a83eb1d", 2)


async def test_session_of_a_header(server: Server) -> None:
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    await server.client.post("/v1/messages", json=body, headers={"x-claude-code-session-id": "abc"})
    assert server.service.requests[0].session_id == "abc"


async def test_warm_call(make_server: MakeServer) -> None:
    """P tokens, of which all whole blocks but the one with the last token are cached; said at the very beginning."""
    server = make_server()
    text = "x" * 960
    await ask(server, text)
    prompt = len(server.service.requests[0].token_ids) // 4
    cached = (prompt - 1) // BLOCK * BLOCK
    assert cached > 900
    wanted = {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
    }
    events = events_of((await ask(server, text, stream=True)).text)
    start = events[0]["message"]["usage"]
    assert {key: start[key] for key in wanted} == wanted
    assert events[-2]["usage"] == {**wanted, "output_tokens": len(ids(ANSWER)) + 1}
    usage = (await ask(server, text)).json()["usage"]
    assert {key: usage[key] for key in wanted} == wanted


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_reasons(make_server: MakeServer, stream: bool) -> None:
    async def ending(script: Script, **fields: Any) -> tuple[Any, Any, list[Any]]:
        response = await ask(make_server(script), stream=stream, **fields)
        answer = fold(events_of(response.text)) if stream else response.json()
        return answer["stop_reason"], answer["stop_sequence"], answer["content"]

    text = Script(ids("one, two; three", end=True))
    assert (await ending(text))[:2] == ("end_turn", None)
    assert await ending(text, max_tokens=3) == ("max_tokens", None, [{"type": "text", "text": "one"}])
    assert await ending(text, stop_sequences=["; th", "zz"]) == (
        "stop_sequence", "; th", [{"type": "text", "text": "one, two"}],
    )  # fmt: skip
    assert await ending(Script((END,))) == ("end_turn", None, [])
    assert await ending(Script(ids(" \n\n", end=True))) == ("end_turn", None, [])
    assert (await ending(Script((*ids("\n hi"), END))))[2] == [{"type": "text", "text": "\n hi"}]


async def test_calls(make_server: MakeServer) -> None:
    answer = (await ask(make_server(Script(ids(CALLS, end=True))), tools=[LS])).json()
    assert without(answer["content"], "id") == CONTENT
    assert answer["stop_reason"] == "tool_use"
    first, second = (block["id"] for block in answer["content"][1:])
    assert first != second and first.startswith("toolu_") and second.startswith("toolu_")


@pytest.mark.parametrize("per_output", [1, 2, 3, 5, 8, 13, 1000])
async def test_streamed_calls(make_server: MakeServer, per_output: int) -> None:
    server = make_server(Script(ids(CALLS, end=True), per_output=per_output, delay_s=0.0005))
    message = fold(events_of((await ask(server, tools=[LS], stream=True)).text))
    assert without(message["content"], "id") == CONTENT and message["stop_reason"] == "tool_use"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_cut_off(make_server: MakeServer, stream: bool) -> None:
    """Its whole values are there, the rest stands apart; and as history it is the text that the model wrote."""
    text = '<tool_call>\n{"name": "write", "arguments": {"path": "a", "content": "half'
    server = make_server(Script(ids(text + " of it"), delay_s=0.0002))
    response = await ask(server, tools=[LS], max_tokens=len(ids(text)), stream=stream)
    answer = fold(events_of(response.text)) if stream else response.json()
    assert answer["stop_reason"] == "max_tokens"
    [call] = answer["content"]
    assert call["input"] == {"path": "a", "_unparsed": ', "content": "half'}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "is_error": True}]},
    ]
    await ask(server, messages=turns)
    assert f"<|im_start|>assistant\n{text}<|im_end|>" in prompt_of(server)


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking(make_server: MakeServer, stream: bool) -> None:
    text = f"<think>Let me see.</think>\n\n{CALLS}"
    server = make_server(Script(ids(text, end=True), per_output=2, delay_s=0.0002))
    response = await ask(server, tools=[LS], stream=stream, thinking={"type": "adaptive"})
    answer = fold(events_of(response.text)) if stream else response.json()
    thought, *rest = answer["content"]
    assert thought.pop("signature") and thought == {"type": "thinking", "thinking": "Let me see."}
    assert [block["type"] for block in rest] == ["text", "tool_use", "tool_use"]
    assert prompt_of(server).endswith("[True]")


async def test_only_a_thought(make_server: MakeServer) -> None:
    answer = (await ask(make_server(Script(ids("<think>Hm.</think>", end=True))))).json()
    assert [block["type"] for block in answer["content"]] == ["thinking"] and answer["stop_reason"] == "end_turn"


async def test_prefill(make_server: MakeServer) -> None:
    server = make_server(Script(ids("4)", end=True)))
    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is ("}]
    answer = (await ask(server, messages=turns)).json()
    assert answer["content"] == [{"type": "text", "text": "4)"}]
    assert prompt_of(server).endswith("<|im_start|>assistant\nIt is (")


@pytest.mark.parametrize("stream", [False, True])
async def test_warming_the_cache_only(make_server: MakeServer, stream: bool) -> None:
    server = make_server()
    response = await ask(server, "y" * 100, max_tokens=0, stream=stream)
    answer = fold(events_of(response.text)) if stream else response.json()
    assert (answer["content"], answer["stop_reason"]) == ([], "max_tokens")
    assert answer["usage"]["output_tokens"] == 0 and answer["usage"]["input_tokens"] > 90
    assert (await ask(server, "y" * 100)).json()["usage"]["cache_read_input_tokens"] > 90


async def test_marks_and_spellings_that_change_nothing(make_server: MakeServer) -> None:
    """cache_control anywhere, system as text or blocks, a string or its one block: the same prompt."""
    server = make_server()
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    call = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"b": 1, "a": 2}}
    done = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}

    def body(mark: dict[str, Any], system: Any, question: Any, result: Any) -> dict[str, Any]:
        return {
            "system": system,
            "tools": [{**LS, **mark}],
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": [{"type": "text", "text": "I look.", **mark}, {**call, **mark}]},
                {"role": "user", "content": [{**done, "content": result, **mark}]},
                {"role": "system", "content": "8 left"},
            ],
            **mark,
        }

    blocks = [{"type": "text", "text": text, **mark} for text in ("a", "b", "c")]
    await ask(server, **body({}, "a\nb\nc", "Hi", "x"))
    hi, x = ([{"type": "text", "text": text, **mark}] for text in ("Hi", "x"))
    await ask(server, **body(mark, blocks, hi, x))
    first, second = server.service.requests
    assert first.token_ids == second.token_ids and first.keys == second.keys
    assert '{"b": 1, "a": 2}' in prompt_of(server)


async def test_what_is_unknown_is_accepted(server: Server) -> None:
    unknown = {
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high", "novelty": 3},
        "mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}],
        "service_tier": "auto",
        "speed": "fast",
        "tomorrow": [1, 2],
        "thinking": {"type": "adaptive", "budget_tokens": 0},
    }
    headers = {"anthropic-beta": "a-2025-01-01,b-2026-01-01,c-2026-02-02", "anthropic-version": "2023-06-01"}
    body = {"model": "x", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], **unknown}
    response = await server.client.post("/v1/messages?beta=true", json=body, headers=headers)
    assert response.status_code == 200


async def test_what_claude_code_sends(server: Server) -> None:
    """The shape of its first turn, 2.1.197."""
    mark = {"cache_control": {"type": "ephemeral"}}
    head = ["x-anthropic-billing-header: cc_version=2;", "You are an agent.", "\nYou do."]
    turn = ["<system-reminder>\nIt is Monday.\n</system-reminder>\n\n", "What is here?"]
    response = await ask(
        server,
        max_tokens=32_000,
        stream=True,
        system=[{"type": "text", "text": text, **mark} for text in head],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": text, **mark} for text in turn]},
            {"role": "system", "content": "Available agent types:\n- claude"},
        ],
        tools=[{**LS, "description": "Lists.", "input_schema": {"$schema": "https://x", **LS["input_schema"]}}],
        metadata={"user_id": '{"device_id":"b7","account_uuid":"","session_id":"6a83"}'},
        thinking={"type": "adaptive"},
        context_management={"edits": []},
        output_config={"effort": "high"},
    )
    assert fold(events_of(response.text))["content"] == [{"type": "text", "text": ANSWER}]
    assert server.service.requests[0].session_id == "6a83"
    assert "<|im_start|>system\nAvailable agent types" in prompt_of(server)


async def test_a_token_that_is_no_text(make_server: MakeServer) -> None:
    server = make_server(Script((*ids("a"), EXTRA, *ids("b"), END)))
    assert (await ask(server)).json()["content"] == [{"type": "text", "text": "ab"}]


async def test_pings_while_the_prompt_is_read(make_server: MakeServer) -> None:
    """By the wall clock, also when one chunk takes all the time."""
    server = make_server(Script(ids("Hi", end=True), prefill_s=0.2), keepalive_s=0.05)
    body = {"max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    exchange = server.exchange("/v1/messages", body)
    await exchange.done()
    kinds = [event["type"] for event in events_of(exchange.body.decode())]
    assert kinds[: kinds.index("message_start")] == ["ping"] * kinds.index("message_start")
    assert kinds.index("message_start") >= 3
    assert exchange.times[0] < 0.1


async def test_an_error_in_mid_stream(make_server: MakeServer) -> None:
    server = make_server(Script(ids("abcdef"), error_after=3, delay_s=0.002))
    events = events_of((await ask(server, stream=True)).text)
    assert events[-1]["type"] == "error"
    assert events[-1]["error"] == {"type": "api_error", "message": "The step failed."}
    assert events[-1]["request_id"]
    assert "message_stop" not in [event["type"] for event in events]
    assert (await ask(server)).status_code == 500


async def test_a_client_that_leaves_ends_the_request(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a" * 1000), prefill_s=5))
    body = {"max_tokens": 500, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    exchange = server.exchange("/v1/messages", body)
    await exchange.until(lambda exchange: exchange.status == 200)
    exchange.disconnect()
    await exchange.done()
    await asyncio.sleep(0)
    assert not server.service.open and server.service.finished


async def test_constraints(make_server: MakeServer) -> None:
    """A call that must come, and a shape that must fit, bind what is generated."""
    server = make_server()
    await ask(server, tools=[LS])
    await ask(server, tools=[LS], tool_choice={"type": "any"})
    await ask(server, tools=[LS], tool_choice={"type": "tool", "name": "ls"})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "schema": schema}
    await ask(server, output_config={"format": form})
    await ask(server, output_format=form)
    free, called, named, shaped, older = (request.sampling.grammar for request in server.service.requests)
    assert not free and called and named and shaped and older == shaped
    bad = {"type": "json_schema", "schema": {"type": "nonsense"}}
    response = await ask(server, output_config={"format": bad})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("output_config.format.schema")
    response = await ask(server, tools=[{"name": "x", "input_schema": bad["schema"], "strict": True}])
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("tools[0].input_schema")


async def test_no_call_where_none_is_wanted(make_server: MakeServer) -> None:
    server = make_server(Script(ids(CALLS, end=True)))
    answer = (await ask(server, tools=[LS], tool_choice={"type": "none"})).json()
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": CALLS}], "end_turn")


async def test_a_report_on_the_cache(make_server: MakeServer) -> None:
    server = make_server()
    assert "cache_report" not in (await ask(server)).json()
    assert (await ask(server, cache_report=True)).json()["cache_report"]["cached_tokens"] >= 0
    events = events_of((await ask(server, cache_report=True, stream=True)).text)
    assert events[-2]["cache_report"]["prompt_tokens"] == len(server.service.requests[-1].token_ids) // 4
