"""Fields that would change the answer are refused while nobody honours them; asking for nothing is no reason to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from samovar.base.keys import unpack_tokens
from samovar.core.ports import EngineInfo
from samovar.serve.bodies import Body, ChatBody, CompletionBody, NotYet, TokenizeBody
from samovar.serve.config import ServeConfig
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from tests.serve.asgi import Server
from tests.serve.conftest import CHATML, MakeServer, ids
from tests.serve.scripted import Script, ScriptedService

HI = [{"role": "user", "content": "Hi"}]
PATHS: dict[type[Body], tuple[str, dict[str, Any]]] = {
    ChatBody: ("/v1/chat/completions", {"messages": HI}),
    CompletionBody: ("/v1/completions", {"prompt": "Hi"}),
    TokenizeBody: ("/tokenize", {"prompt": "Hi"}),
}
BOTH = {
    "bad_words": ["a"], "allowed_token_ids": [1], "truncate_prompt_tokens": -1, "logits_processors": ["x"],
    "length_penalty": 1.2, "prompt_embeds": "AAAA", "use_beam_search": True, "prompt_logprobs": 0,
    "thinking_token_budget": 5, "return_tokens_as_token_ids": True,
}  # fmt: skip
CHAT = {
    "prediction": {"type": "content", "content": "a"}, "documents": [{"text": "a"}], "audio": {}, "functions": [],
    "function_call": "auto", "chat_template": "x", "echo": True, "web_search_options": {},
}  # fmt: skip
REFUSED: list[tuple[type[Body], str, Any]] = [
    *((body, name, value) for body in (ChatBody, CompletionBody) for name, value in BOTH.items()),
    *((ChatBody, name, value) for name, value in CHAT.items()),
    (CompletionBody, "max_completion_tokens", 5),
    (TokenizeBody, "chat_template", "x"),
]
NOTHING = {
    "bad_words": [], "logits_processors": [], "length_penalty": 1.0, "use_beam_search": False, "documents": [],
    "echo": False, "return_tokens_as_token_ids": False,
}  # fmt: skip


@pytest.mark.parametrize(("body", "name", "value"), REFUSED)
async def test_refused_by_name(make_server: MakeServer, body: type[Body], name: str, value: Any) -> None:
    path, base = PATHS[body]
    server = make_server()
    response = await server.post(path, {**base, name: value})
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == name
    assert error["message"] == f"{name}: not supported yet." and not server.service.requests


def test_every_marked_field_is_tried() -> None:
    marked = {
        (body, name)
        for body in PATHS
        for name, field in body.model_fields.items()
        if any(isinstance(mark, NotYet) for mark in field.metadata)
    }
    assert marked == {(body, name) for body, name, _ in REFUSED}


@pytest.mark.parametrize("body", PATHS)
async def test_asking_for_nothing_is_fine(make_server: MakeServer, body: type[Body]) -> None:
    path, base = PATHS[body]
    names = [name for marked, name, _ in REFUSED if marked is body]
    server = make_server()
    assert (await server.post(path, {**base, **dict.fromkeys(names)})).status_code == 200
    for name in {*names, *(("length_penalty",) if body is not TokenizeBody else ())} & set(NOTHING):
        assert (await server.post(path, {**base, name: NOTHING[name]})).status_code == 200, name
    if body is not TokenizeBody:
        assert (await server.post(path, {**base, "length_penalty": 1})).status_code == 200
        for value in (True, "1", 0):
            assert (await server.post(path, {**base, "length_penalty": value})).status_code == 400


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("reads", [True, False])
async def test_a_template_without_tools_gets_ours_and_says_so_once(
    tokenizer: Tokenizer, info: EngineInfo, caplog: pytest.LogCaptureFixture, reads: bool
) -> None:
    source = CHATML if reads else CHATML.replace("{% if tools %}", "{% if false %}")
    said = '<tool_call>{"name": "look", "arguments": {"at": "tea"}}</tool_call>'
    service = ScriptedService(lambda request: Script(ids(said, end=True)), info)
    caplog.set_level(logging.INFO, "samovar")
    server = Server(service, tokenizer, ChatTemplate({"default": source}, {}), ServeConfig(model="tea"))
    for tools in (TOOLS, TOOLS):
        answer = (await server.chat(tools=tools)).json()["choices"][0]
        call = answer["message"]["tool_calls"][0]
        assert call["function"] == {"name": "look", "arguments": '{"at": "tea"}'}
        assert answer["finish_reason"] == "tool_calls" and answer["message"]["content"] is None
        prompt = tokenizer.decode(unpack_tokens(service.requests[-1].token_ids), skip_special_tokens=False)
        assert '"name": "look"' in prompt and ("<tool_response>" in prompt) == (not reads)
    assert sum("the chat template reads no tools" in message for message in caplog.messages) == (0 if reads else 1)


async def test_one_call_at_a_time_is_held_by_a_constraint(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a", end=True)))
    for fields, bound in (({}, False), ({"parallel_tool_calls": True}, False), ({"parallel_tool_calls": False}, True)):
        assert (await server.chat(tools=TOOLS, **fields)).status_code == 200
        assert bool(server.service.requests[-1].sampling.grammar) == bound


async def test_allowed_tools_keep_the_prompt(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a", end=True)))
    more = [*TOOLS, {"type": "function", "function": {"name": "pour"}}]
    named = [{"type": "function", "function": {"name": "look"}}]
    prompts, grammars = set(), []
    for mode in (None, "auto", "required"):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
        answer = await server.chat(tools=more, **({} if mode is None else {"tool_choice": allowed}))
        assert answer.status_code == 200
        prompts.add(server.service.requests[-1].token_ids)
        grammars.append(server.service.requests[-1].sampling.grammar)
    assert len(prompts) == 1 and grammars[:2] == ["", ""]
    assert "look" in grammars[2] and "pour" not in grammars[2]
    for wrong in ({}, {"mode": "auto"}, {"mode": "x", "tools": named}, {"mode": "auto", "tools": [3]}):
        answer = await server.chat(tools=more, tool_choice={"type": "allowed_tools", "allowed_tools": wrong})
        assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("tool_choice.allowed_tools")


async def test_custom_tools_are_sent_to_responses(make_server: MakeServer) -> None:
    answer = await make_server().chat(tools=[{"type": "custom", "custom": {"name": "x"}}])
    assert answer.status_code == 400 and "/v1/responses" in answer.json()["error"]["message"]
