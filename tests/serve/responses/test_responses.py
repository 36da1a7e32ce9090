"""Answers that are not streamed, what is kept of them, and what the next request makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import gc
from typing import Any

from openai.types.responses import ResponseItemList
import pytest

from samovar.serve.config import StoreLimits
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.responses.conftest import THINKING, TOOLS, prompt, refusal, respond, stream
from tests.serve.scripted import Script

Says = Callable[..., Server]


async def get(server: Server, path: str, **query: str) -> Any:
    return await server.client.get(f"/v1/responses/{path}", params=query)


async def test_plain(says: Says) -> None:
    server = says("Hello")
    answer = await respond(server, model="anything", instructions="Be brief.")
    assert answer["model"] == "anything" and answer["object"] == "response"
    assert answer["output"][0]["content"][0]["text"] == "Hello"
    assert prompt(server) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (await get(server, answer["id"])).json() == answer


async def test_continued(says: Says) -> None:
    """Calls are never lost, and instructions are not inherited."""
    server = says(THINKING, "Done.", "Bye.")
    first = await respond(server, instructions="One.", tools=TOOLS)
    call_ids = [item["call_id"] for item in first["output"] if "call_id" in item]
    results = [{"type": "function_call_output", "call_id": id, "output": id} for id in call_ids]
    second = await respond(server, results, previous_response_id=first["id"], instructions="Two.", tools=TOOLS)
    assert second["previous_response_id"] == first["id"]
    said = prompt(server)
    assert "Two." in said and "One." not in said
    assert said.count("<tool_call>") == 3 and "<think>Look first.</think>I will look." in said
    assert said.count("<|im_start|>tool") == 3 and said.endswith("<|im_start|>assistant\n")
    await respond(server, "Thanks", previous_response_id=second["id"])
    assert prompt(server).count("<tool_call>") == 3 and "Done.<|im_end|>\n<|im_start|>user\nThanks" in prompt(server)


async def test_continued_after_the_first_was_deleted(says: Says) -> None:
    server = says("Hello")
    first = await respond(server, "First")
    second = await respond(server, "Second", previous_response_id=first["id"])
    gone = await server.client.delete(f"/v1/responses/{first['id']}")
    assert gone.json() == {"id": first["id"], "object": "response", "deleted": True}
    await respond(server, "Third", previous_response_id=second["id"])
    assert [word in prompt(server) for word in ("First", "Second", "Third")] == [True] * 3
    refusal(await get(server, first["id"]), 404)
    refusal(await server.client.delete(f"/v1/responses/{first['id']}"), 404)


async def test_every_turn_is_a_hit(says: Says) -> None:
    server = says("Hello" * 10)
    first = await respond(server, "Hi " * 30)
    second = await respond(server, "More", previous_response_id=first["id"])
    hit = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert hit >= (first["usage"]["input_tokens"] - 1) // 16 * 16 - 16 > 0


async def test_unknown_previous(says: Says) -> None:
    server = says("Hello")
    response = await server.post("/v1/responses", {"input": "Hi", "previous_response_id": "resp_x"})
    assert refusal(response, 404)["param"] == "previous_response_id"


async def test_not_stored(says: Says) -> None:
    server = says("Hello")
    answer = await respond(server, store=False)
    assert answer["store"] is False
    refusal(await get(server, answer["id"]), 404)
    assert server.store.num_bytes == 0


async def test_limit_of_the_store(says: Says) -> None:
    server = says("Hello", stored_responses=StoreLimits(max_responses=3))
    made = [(await respond(server))["id"] for _ in range(4)]
    refusal(await get(server, made[0]), 404)
    assert [(await get(server, id)).status_code for id in made[1:]] == [200] * 3


async def test_other_tenants_are_strangers(make_server: MakeServer) -> None:
    server = make_server(api_keys=("one", "two"))
    mine, other = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
    made = (await server.client.post("/v1/responses", json={"input": "Hi"}, headers=mine)).json()
    id, item = made["id"], made["output"][0]["id"]
    for method, path in (
        ("GET", id),
        ("DELETE", id),
        ("POST", f"{id}/cancel"),
        ("GET", f"{id}/input_items"),
    ):
        refusal(await server.client.request(method, f"/v1/responses/{path}", headers=other), 404)
        refusal(await server.client.request(method, f"/v1/responses/{path}"), 401)
    for input, param in (([{"type": "item_reference", "id": item}], "input[0].id"), ("Hi", "previous_response_id")):
        body = {"input": input, **({"previous_response_id": id} if input == "Hi" else {})}
        refused = await server.client.post("/v1/responses", json=body, headers=other)
        assert refusal(refused, 404)["param"] == param
    assert (await server.client.get(f"/v1/responses/{id}", headers=mine)).status_code == 200


async def test_item_references(says: Says) -> None:
    server = says(THINKING)
    first = await respond(server, tools=TOOLS)
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    await respond(server, [{"role": "user", "content": "Hi"}, *references], tools=TOOLS)
    assert prompt(server).count("<tool_call>") == 3


async def test_an_item_is_referred_to_once(says: Says) -> None:
    """A few bytes never stand for a text many times over."""
    server = says("Hello")
    item = (await respond(server))["output"][0]["id"]
    references = [{"type": "item_reference", "id": item}] * 20_000
    error = refusal(await server.post("/v1/responses", {"input": references}))
    assert error["param"] == "input[1].id" and "input[0].id" in error["message"]
    assert len(server.service.requests) == 1


async def test_deleted_while_it_runs(says: Says) -> None:
    server = says("Hello" * 20, delay_s=0.01)
    other = (await respond(server))["id"]
    num_bytes = server.store.num_bytes
    running = asyncio.create_task(server.post("/v1/responses", {"input": "Hi"}))
    while not server.store._tenants[""].running:
        await asyncio.sleep(0.01)
    (id,) = server.store._tenants[""].running
    assert (await server.client.delete(f"/v1/responses/{id}")).json()["deleted"] is True
    await running
    refusal(await get(server, id), 404)
    assert (await get(server, other)).status_code == 200 and server.store.num_bytes == num_bytes
    server.store.check()


async def test_what_an_answer_holds_of_its_body(make_server: MakeServer) -> None:
    """While it runs: the conversation in bytes, for the store, and no parsed copy of it."""
    server = make_server(Script(ids("Hello" * 40, end=True), delay_s=0.02))
    items = [{"role": "user", "content": [{"type": "input_text", "text": f"m{at}"}]} for at in range(250)]
    task = asyncio.create_task(server.post("/v1/responses", {"input": items}))
    while not server.store._tenants:
        await asyncio.sleep(0.01)
    gc.collect()
    left = [
        found for found in gc.get_objects() if type(found) is dict and found.get("content") == items[200]["content"]
    ]
    assert len(left) == 1, "only the test's own"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_input_items(says: Says) -> None:
    server = says("Hello")
    items = [
        {"role": "developer", "content": "a"},
        {"type": "message", "id": "msg_own", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    id = (await respond(server, items))["id"]
    whole = (await get(server, f"{id}/input_items", order="asc")).json()
    ResponseItemList.model_validate(whole)
    assert [item["type"] for item in whole["data"]] == ["message", "message", "function_call", "function_call_output"]
    assert whole["data"][0]["content"] == [{"type": "input_text", "text": "a"}] and whole["has_more"] is False
    assert whole["data"][1]["id"] == "msg_own" and len({item["id"] for item in whole["data"]}) == 4
    newest = (await get(server, f"{id}/input_items", limit="3")).json()
    assert newest["data"] == whole["data"][:0:-1] and newest["has_more"] is True
    rest = (await get(server, f"{id}/input_items", after=newest["last_id"])).json()
    assert rest["data"] == whole["data"][:1]
    for query in ({"limit": "0"}, {"limit": "x"}, {"order": "up"}):
        assert refusal(await get(server, f"{id}/input_items", **query))["param"] == next(iter(query))
    refusal(await get(server, f"{id}/input_items", after="nope"), 404)


async def test_all_kinds_of_tools(says: Says) -> None:
    server = says("Hello")
    response = await server.post("/v1/responses", {"input": "Hi", "tools": TOOLS, "tool_choice": "auto"})
    assert response.status_code == 200 and response.headers["x-samovar-ignored-tools"] == "1; web_search"
    shown = prompt(server)
    assert "mcp__git__log" in shown and "apply_patch" in shown and "web_search" not in shown
    odd = [{"type": "x\r\ny"}, {"type": "web_search"}, {"type": "web_search"}]
    response = await server.post("/v1/responses", {"input": "Hi", "tools": odd, "stream": True})
    assert response.headers["x-samovar-ignored-tools"] == "3; ?, web_search"


async def test_allowed_tools_change_no_prompt(says: Says) -> None:
    """Whichever are allowed, the prefix stays; where a call must come, only they are in the grammar."""
    server = says("Hello")
    await respond(server, tools=TOOLS)
    one, other = {"type": "function", "name": "ls"}, {"type": "custom", "name": "apply_patch"}
    for mode, allowed in (("auto", [one]), ("required", [one]), ("required", [one, other]), ("auto", [])):
        await respond(server, tools=TOOLS, tool_choice={"type": "allowed_tools", "mode": mode, "tools": allowed})
        assert prompt(server) == prompt(server, 0)
        grammar = server.service.requests[-1].sampling.grammar
        assert bool(grammar) == (mode == "required") and "mcp__git__log" not in grammar
        assert ("apply_patch" in grammar) == (mode == "required" and other in allowed)


async def test_unknown_fields_and_codex_fields_are_taken(says: Says) -> None:
    server = says("Hello")
    await respond(
        server,
        model="m",
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning={"effort": "high", "summary": "auto"},
        text={"verbosity": "low"},
        include=["reasoning.encrypted_content"],
        prompt_cache_key="conversation-1",
        client_metadata={"a": "b"},
        service_tier="priority",
        truncation="auto",
        stream_options={"include_obfuscation": False},
        context_management=[{"type": "compaction", "compact_threshold": 1000}],
        made_up=7,
        background=False,
        user="u",
    )
    assert prompt(server).endswith("<|im_start|>assistant\n[high]")
    assert server.service.requests[0].session_id == "conversation-1"


async def test_content_of_calls_alone(says: Says) -> None:
    """A turn of calls has one prompt, whether an empty message stands beside them or not."""
    server = says("Hello")
    call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c", "output": "x"}
    shown = []
    for content in ("", [], [{"type": "output_text", "text": ""}], None):
        await respond(server, [{"role": "assistant", "content": content}, call, done])
        shown.append(prompt(server))
    await respond(server, [call, done])
    assert {*shown, prompt(server)} == {shown[0]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": "Hi", "background": True}, "background"),
        ({"input": "Hi", "conversation": "conv_1"}, "conversation"),
        ({"input": "Hi", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "Hi", "n": 2}, "n"),
        ({"input": "Hi", "top_logprobs": 3}, "top_logprobs"),
        ({"input": "Hi", "include": ["message.output_text.logprobs"]}, "include"),
        ({"input": "Hi", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "Hi", "max_tokens": 5}, "max_tokens"),
        ({"input": "Hi", "include": ["x"] * 101}, "include"),
        ({"input": "Hi", "tools": [{"type": "web_search"}] * 1025}, "tools"),
        ({"input": [{"type": "ghost_snapshot"}]}, "input"),
        ({"input": "Hi", "truncation": "head"}, "truncation"),
        ({"input": "Hi", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "Hi", "tool_choice": "required"}, "tool_choice"),
        ({"input": "Hi", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"input": "Hi", "reasoning": {"effort": 7}}, "reasoning.effort"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "compaction_trigger"}, {"role": "user", "content": "Hi"}]}, "input[0]"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "additional_tools", "role": "developer"}]}, "input[0].tools"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_refusals(says: Says, body: dict[str, Any], param: str, streaming: bool) -> None:
    server = says("Hello")
    error = refusal(await server.post("/v1/responses", {**body, "stream": streaming}))
    assert error["param"] == param and error["type"] == "invalid_request_error" and error["message"].startswith(param)
    assert not server.service.requests


async def test_half_a_character(says: Says) -> None:
    raw = rb'{"input": [{"role": "user", "content": "\ud800"}]}'
    assert refusal(await says("Hello").client.post("/v1/responses", content=raw))["param"] == "input[0].content"


@pytest.mark.parametrize("length", [4080, 5000, 100_000])
async def test_too_long(says: Says, length: int) -> None:
    error = refusal(await says("Hello").post("/v1/responses", {"input": "x" * length}))
    assert error["code"] == "context_length_exceeded" and error["param"] == "input" and "4096" in error["message"]


async def test_unknown_ids(says: Says) -> None:
    server = says("Hello")
    for method, path in (("GET", "x"), ("DELETE", "x"), ("POST", "x/cancel"), ("GET", "x/input_items")):
        refusal(await server.client.request(method, f"/v1/responses/{path}"), 404)
    answer = await respond(server)
    refusal(await server.client.post(f"/v1/responses/{answer['id']}/cancel"))
    assert refusal(await get(server, answer["id"], stream="true"))["param"] == "stream"


async def test_streamed_ones_are_kept_too(says: Says) -> None:
    server = says("Hello")
    final = (await stream(server))[-1]["response"]
    assert (await get(server, final["id"])).json() == final
