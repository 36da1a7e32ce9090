"""Events of a stream: numbered, in pairs, of the official types, and in sum the answer that is not streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
import pytest

from samovar.serve.ignored_tools import IgnoredTools
from samovar.serve.responses.output import OutputItems
from samovar.serve.responses.sealed import unseal
from samovar.serve.responses.tools import read_tools
from samovar.text.answer import AnswerEvent, CallArguments, CallBegin, CallEnd, ReasoningDelta, TextDelta
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.responses.conftest import THINKING, TOOLS, events, prompt, respond, stream
from tests.serve.scripted import Script

Says = Callable[..., Server]
OFFICIAL: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def check(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What holds for every stream; returns the last event's response."""
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    for event in found:
        OFFICIAL.validate_python(event, strict=True)
    check_items(found)
    final: dict[str, Any] = found[-1]["response"]
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert final["output"] == done and {event["response"]["id"] for event in found if "response" in event} == {
        final["id"]
    }
    return final


def check_items(found: list[dict[str, Any]]) -> None:
    """Each item is added, told and done before the next is added."""
    current: dict[str, Any] | None = None
    count, pieces = 0, ""
    for event in found:
        kind = event["type"]
        if "output_index" not in event:
            assert current is None
            continue
        assert event["output_index"] == count
        if kind == "response.output_item.added":
            assert current is None
            current, pieces = event["item"], ""
            continue
        assert current is not None
        if kind == "response.output_item.done":
            item = event["item"]
            assert (item["id"], item.get("call_id")) == (current["id"], current.get("call_id"))
            content = [part["text"] for part in [*item.get("content", ()), *item.get("summary", ())]]
            texts = content or [item["arguments"] if "arguments" in item else item.get("input", "")]
            assert texts == [pieces]
            current, count = None, count + 1
            continue
        assert event["item_id"] == current["id"]
        if kind.endswith(".delta"):
            pieces += event["delta"]
    assert current is None


@pytest.mark.parametrize("per_output", [1, 7, 1000])
async def test_everything(says: Says, per_output: int) -> None:
    server = says(THINKING, per_output=per_output)
    fields: dict[str, Any] = {"tools": TOOLS, "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"}}
    final = check(await stream(server, **fields))
    assert final["status"] == "completed" and final["error"] is None and final["incomplete_details"] is None
    reasoning, message, ls, log, patch = final["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Look first."}] and reasoning["summary"] == []
    assert unseal("reasoning", reasoning["encrypted_content"]) == "Look first."
    assert message["content"][0]["text"] == "I will look." and message["role"] == "assistant"
    assert (ls["type"], ls["name"], ls["arguments"]) == ("function_call", "ls", '{"path": "a", "all": true}')
    assert "namespace" not in ls
    assert (log["name"], log["namespace"], log["arguments"]) == ("log", "mcp__git", "{}")
    assert (patch["type"], patch["name"]) == ("custom_tool_call", "apply_patch")
    assert patch["input"] == '*** Begin\n+"a"\n'
    assert len({item["id"] for item in final["output"]}) == 5
    assert len({item["call_id"] for item in (ls, log, patch)}) == 3
    usage = final["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] == 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

    whole = await respond(server, **fields)
    Response.model_validate(whole)
    assert [_same(item) for item in whole["output"]] == [_same(item) for item in final["output"]]
    echo = {"metadata": {"a": "b"}, "store": True, "parallel_tool_calls": True, "tool_choice": "auto"}
    assert {name: whole[name] for name in echo} == echo and len(whole["tools"]) == 4


def _same(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "call_id")}


async def test_summary_in_place_of_reasoning(says: Says) -> None:
    found = await stream(says(THINKING), tools=TOOLS, reasoning={"effort": "low", "summary": "auto"})
    reasoning = check(found)["output"][0]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "Look first."}]
    assert "content" not in reasoning and "encrypted_content" not in reasoning
    kinds = [event["type"] for event in found]
    assert kinds.count("response.reasoning_summary_part.added") == 1
    assert not any(kind.startswith("response.reasoning_text") for kind in kinds)


async def test_nothing_said(says: Says) -> None:
    final = check(await stream(says("")))
    assert final["output"][0]["content"][0]["text"] == ""


async def test_limit(says: Says) -> None:
    found = await stream(says("One two three"), max_output_tokens=5)
    final = check(found)
    assert found[-1]["type"] == "response.incomplete" and final["status"] == "incomplete"
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    (message,) = final["output"]
    assert message["content"][0]["text"] == "One t" and message["status"] == "incomplete"
    assert final["usage"]["output_tokens"] == 5


async def test_limit_within_a_call(says: Says) -> None:
    first, second = check(await stream(says(THINKING), tools=TOOLS, max_output_tokens=100))["output"][1:]
    assert first["status"] == "completed" and second["status"] == "incomplete"
    assert '{"path": "a", "all": true}'.startswith(second["arguments"])


async def test_limit_after_a_call(says: Says) -> None:
    """The call itself is whole."""
    text = '<tool_call>{"name": "ls", "arguments": {"path": "a"}}'
    final = check(await stream(says(text + "</tool_call>"), tools=TOOLS, max_output_tokens=len(text)))
    assert final["status"] == "incomplete" and final["output"][0]["status"] == "completed"


async def test_max_output_tokens_beyond_the_context(says: Says) -> None:
    assert (await respond(says("Hello"), max_output_tokens=1_000_000))["status"] == "completed"


async def test_beginning_before_the_first_token(make_server: MakeServer) -> None:
    """And signs of life by the clock until there is one."""
    server = make_server(Script(ids("ok", end=True), prefill_s=0.5), keepalive_s=0.1)
    exchange = server.exchange("/v1/responses", {"input": "Hi", "stream": True})
    await exchange.until(lambda e: e.sent)
    assert exchange.times[0] < 0.3 and b"response.in_progress" in exchange.sent[0]
    await exchange.done()
    assert exchange.sent.count(b": keep-alive\n\n") >= 3
    check(events(exchange.body.decode()))


async def test_failure(make_server: MakeServer) -> None:
    server = make_server(Script(ids("abcdef", end=True), error_after=3, delay_s=0.02))
    found = await stream(server)
    final = check(found)
    assert found[-1]["type"] == "response.failed" and final["status"] == "failed"
    assert final["error"]["code"] == "server_error" and final["error"]["message"]
    assert final["output"][0]["content"][0]["text"] == "abc" and final["output"][0]["status"] == "incomplete"


async def test_leaving_frees_everything(make_server: MakeServer) -> None:
    server = make_server(Script(ids("x" * 200), delay_s=0.02))
    exchange = server.exchange("/v1/responses", {"input": "Hi", "stream": True})
    await exchange.until(lambda e: b"output_text.delta" in e.body)
    id = events(exchange.body.decode().rpartition("\n\n")[0])[0]["response"]["id"]
    assert (await server.client.get(f"/v1/responses/{id}")).json()["status"] == "in_progress"
    exchange.disconnect()
    await exchange.done()
    assert not server.service.open
    assert (await server.client.get(f"/v1/responses/{id}")).status_code == 404


@pytest.mark.parametrize("streaming", [True, False])
async def test_cancel(make_server: MakeServer, streaming: bool) -> None:
    server = make_server(Script(ids("x" * 400), delay_s=0.02))
    exchange = server.exchange("/v1/responses", {"input": "Hi", "stream": streaming})
    if streaming:
        await exchange.until(lambda e: b"output_text.delta" in e.body)
        id = events(exchange.body.decode().rpartition("\n\n")[0])[0]["response"]["id"]
    else:
        await exchange.until(lambda e: server.service.open)
        await asyncio.sleep(0.1)
        store = server.store
        id = next(iter(store._tenants[""].running))
    answer = await server.client.post(f"/v1/responses/{id}/cancel")
    assert answer.status_code == 200 and answer.json()["status"] == "cancelled"
    await exchange.done()
    assert not server.service.open
    found = events(exchange.body.decode())[-1]["response"] if streaming else json.loads(exchange.body)
    assert found["id"] == id and found["status"] == "cancelled"
    assert (await server.client.get(f"/v1/responses/{id}")).json() == found
    again = await server.client.post(f"/v1/responses/{id}/cancel")
    assert again.status_code == 400


async def test_history_is_what_was_generated(says: Says) -> None:
    """The output sent back as input makes the prompt that the answer stood in."""
    server = says(THINKING, "Done.")
    first = check(await stream(server, tools=TOOLS, include=["reasoning.encrypted_content"], store=False))
    results = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": str(at)}
        for at, item in enumerate(first["output"][2:])
    ]
    question = {"role": "user", "content": "Hi"}
    before = prompt(server)
    await respond(server, [question, *first["output"], *results], tools=TOOLS)
    said = prompt(server).removeprefix(before)
    assert said.startswith(f"{THINKING}<|im_end|>\n<|im_start|>tool ls\n0<|im_end|>")
    assert said.count("<|im_start|>tool") == 3 and said.count("<|im_start|>assistant") == 1


def happened() -> st.SearchStrategy[list[AnswerEvent]]:
    """Whole answers, as any parser may tell them."""
    text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)
    words = st.builds(TextDelta, text) | st.builds(ReasoningDelta, text)
    names = st.sampled_from(["ls", "apply_patch", "mcp__git__log", "made_up"])
    call = st.tuples(names, st.lists(text, max_size=3))

    def flat(parts: list[Any]) -> list[AnswerEvent]:
        out: list[AnswerEvent] = []
        calls = 0
        for part in parts:
            if isinstance(part, tuple):
                name, pieces = part
                out += [CallBegin(calls, name), *(CallArguments(calls, piece) for piece in pieces), CallEnd(calls)]
                calls += 1
            else:
                out.append(part)
        return out

    return st.lists(words | call, max_size=8).map(flat)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=happened(), as_summary=st.booleans(), cut=st.booleans())
def test_any_answer(answer: list[AnswerEvent], as_summary: bool, cut: bool) -> None:
    toolbox = read_tools([(f"tools[{at}]", tool) for at, tool in enumerate(TOOLS)], IgnoredTools())
    items = OutputItems(toolbox.names, "n", as_summary=as_summary, sealed=True)
    found = [event for one in answer for event in items.take(one)]
    found += items.finish(cut=cut)
    check_items(found)
    for at, event in enumerate(found):
        OFFICIAL.validate_python({**event, "sequence_number": at}, strict=True)
    assert [event["item"] for event in found if event["type"] == "response.output_item.done"] == items.done
    assert len({item["id"] for item in items.done}) == len(items.done) > 0
    calls = [item["call_id"] for item in items.done if "call_id" in item]
    assert len(set(calls)) == len(calls) == sum(isinstance(one, CallBegin) for one in answer)
    assert all(item["status"] == "completed" for item in items.done[:-1])
    if not cut:
        assert items.done[-1]["status"] == "completed"
