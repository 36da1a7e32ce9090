"""The engine is told how every answer ended, once its text was read, in all four APIs, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samovar.base.errors import Saturated
from samovar.core.ports import EngineInfo
from samovar.serve.config import ServeConfig
from samovar.serve.recorded import RecordedService
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.workload.recording import Recorder
from tests.serve.asgi import Server
from tests.serve.conftest import MakeServer, ids
from tests.serve.responses.conftest import TEMPLATE
from tests.serve.scripted import BLOCK, Script, ScriptedService

MESSAGES = [{"role": "user", "content": "Hi"}]
FUNCTION = {"name": "ls", "parameters": {"type": "object", "properties": {}}}
CHAT, COMPLETIONS, ANTHROPIC, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": MESSAGES, "tools": [{"type": "function", "function": FUNCTION}], "max_tokens": 2000},
    COMPLETIONS: {"prompt": "Hi", "max_tokens": 2000},
    ANTHROPIC: {
        "messages": MESSAGES, "max_tokens": 2000, "tools": [{"name": "ls", "input_schema": FUNCTION["parameters"]}],
    },
    RESPONSES: {"input": "Hi", "tools": [{"type": "function", **FUNCTION}], "max_output_tokens": 2000},
}  # fmt: skip
LIMIT = {CHAT: "max_tokens", COMPLETIONS: "max_tokens", ANTHROPIC: "max_tokens", RESPONSES: "max_output_tokens"}
EVERYWHERE = pytest.mark.parametrize(
    ("path", "stream"), [(path, stream) for path in BODIES for stream in (False, True)]
)


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate({"default": TEMPLATE}, {})


def called(*names: str) -> str:
    return "".join(f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {{}}}}</tool_call>' for name in names)


async def outcomes(server: Server, path: str, **fields: Any) -> list[tuple[int, str, tuple[str, ...]]]:
    """Of one request; places of its choices for ids."""
    response = await server.post(path, {**BODIES[path], **fields})
    assert response.status_code == 200, response.text
    places = {request.id: at for at, request in enumerate(server.service.requests)}
    return sorted((places[id], reason, tools) for id, reason, tools in server.service.outcomes)


@EVERYWHERE
async def test_stop(make_server: MakeServer, path: str, stream: bool) -> None:
    server = make_server(Script(ids("Hello", end=True), per_output=2))
    assert await outcomes(server, path, stream=stream) == [(0, "stop", ())]


@EVERYWHERE
async def test_length(make_server: MakeServer, path: str, stream: bool) -> None:
    server = make_server(Script(ids("Hello" + called("ls"))))
    assert await outcomes(server, path, stream=stream, **{LIMIT[path]: 3}) == [(0, "length", ())]


@EVERYWHERE
async def test_calls(make_server: MakeServer, path: str, stream: bool) -> None:
    """Each tool once, in the order of the calls. Completions are text, whatever it looks like."""
    server = make_server(Script(ids("I look." + called("ls", "cat", "ls"), end=True), per_output=7))
    wanted = (0, "stop", ()) if path == COMPLETIONS else (0, "tool_calls", ("ls", "cat"))
    assert await outcomes(server, path, stream=stream) == [wanted]


@EVERYWHERE
async def test_a_stop_string(make_server: MakeServer, path: str, stream: bool) -> None:
    """The engine was stopped from outside, and is told that the answer was complete all the same."""
    if path == RESPONSES:
        stop: dict[str, Any] = {"stop": "lo"}
    else:
        stop = {"stop_sequences": ["lo"]} if path == ANTHROPIC else {"stop": ["lo"]}
    server = make_server(Script(ids("Hello" + "x" * 500), delay_s=0.001))
    assert await outcomes(server, path, stream=stream, **stop) == [(0, "stop", ())]
    assert server.service.finished == [(server.service.requests[0].id, 5)]


@pytest.mark.parametrize("path", BODIES)
async def test_a_client_that_leaves(make_server: MakeServer, path: str) -> None:
    server = make_server(Script(ids("x" * 1000), delay_s=0.005))
    for stream in (False, True):
        exchange = server.exchange(path, {**BODIES[path], "stream": stream})
        await exchange.until(lambda exchange, stream=stream: len(server.service.open) and (exchange.sent or not stream))
        exchange.disconnect()
        await exchange.done()
    assert [reason for _, reason, _ in server.service.outcomes] == ["abort", "abort"]
    assert {id for id, _, _ in server.service.outcomes} == {request.id for request in server.service.requests}


async def test_every_choice_for_itself(make_server: MakeServer) -> None:
    said = iter([called("ls"), "Hello", called("cat")])
    server = make_server(lambda request: Script(ids(next(said), end=True)), max_n=4)
    assert await outcomes(server, CHAT, n=3) == [
        (0, "tool_calls", ("ls",)),
        (1, "stop", ()),
        (2, "tool_calls", ("cat",)),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_failures(make_server: MakeServer, stream: bool) -> None:
    """A choice that failed, one that was still at work, one that had ended."""
    scripts = [
        Script(ids("abcd"), error_after=2, delay_s=0.05),
        Script(ids("x" * 500), delay_s=0.02),
        Script(ids("a", True)),
    ]
    left = iter(scripts)
    server = make_server(lambda request: next(left), max_n=4)
    response = await server.post(CHAT, {**BODIES[CHAT], "n": 3, "stream": stream})
    assert response.status_code == (200 if stream else 500)
    first = server.service.requests[0].id
    assert sorted((id - first, reason) for id, reason, _ in server.service.outcomes) == [
        (0, "error"),
        (1, "error"),
        (2, "stop"),
    ]


async def test_a_shutdown_in_mid_answer(make_server: MakeServer) -> None:
    server = make_server(Script(ids("x" * 1000), delay_s=0.005))
    exchange = server.exchange(CHAT, {**BODIES[CHAT], "stream": True})
    await exchange.until(lambda exchange: exchange.sent)
    server.drain.cut_off()
    await exchange.done()
    assert [reason for _, reason, _ in server.service.outcomes] == ["abort"]


async def test_names_are_bounded(make_server: MakeServer) -> None:
    names = ["n" * 300, *(f"t{at}" for at in range(20))]
    server = make_server(Script(ids(called(*names), end=True), per_output=50), max_n=1)
    ((_, reason, tools),) = await outcomes(server, CHAT)
    assert reason == "tool_calls" and tools == ("n" * 128, *(f"t{at}" for at in range(7)))


async def test_a_refused_request_has_no_outcome(make_server: MakeServer) -> None:
    server = make_server(Script((), refusal=Saturated("full")))
    assert (await server.post(CHAT, BODIES[CHAT])).status_code == 429
    assert server.service.outcomes == []


async def test_a_recorded_engine_is_told_and_answers_too(
    tmp_path: Any, info: EngineInfo, tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    inner = ScriptedService(lambda request: Script(ids(called("ls"), end=True)), info)
    service = RecordedService(inner, Recorder(tmp_path, "run", BLOCK), "tea")
    server = Server(service, tokenizer, template, ServeConfig(model="tea"))  # type: ignore[arg-type]
    hints = {"actions": [{"action": "release"}]}
    answer = (await server.post(CHAT, {**BODIES[CHAT], "session_id": "s", "kv_hints": hints})).json()
    assert answer["kv_hints"]["answers"] == [{"action": "release", "status": "applied", "reason": ""}]
    assert [(reason, tools) for _, reason, tools in inner.outcomes] == [("tool_calls", ("ls",))]
    assert (await server.client.delete("/v1/sessions/s")).status_code == 200
    assert await service.cache_report() == inner.report
