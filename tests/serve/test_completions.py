"""Text completions: the four prompt forms, echo, log probabilities, streams."""

from __future__ import annotations

import pytest

from samovar.base.keys import unpack_tokens
from samovar.serve.config import ServeConfig
from tests.serve.asgi import Server, events
from tests.serve.conftest import MakeServer, ids
from tests.serve.scripted import Script, ScriptedService


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", [[97, 98]]),
        (["ab", "c"], [[97, 98], [99]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
    ],
)
async def test_prompt_forms(make_server: MakeServer, prompt: object, expected: list[list[int]]) -> None:
    server = make_server()
    answer = (await server.complete(prompt, n=2)).json()
    assert answer["object"] == "text_completion"
    assert [choice["index"] for choice in answer["choices"]] == list(range(2 * len(expected)))
    sent = [unpack_tokens(request.token_ids) for request in server.service.requests]
    assert sent == [tokens for tokens in expected for _ in range(2)]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, expected))


async def test_default_length(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a" * 100)))
    choice = (await server.complete()).json()["choices"][0]
    assert choice["text"] == "a" * 16 and choice["finish_reason"] == "length" and choice["stop_reason"] is None


@pytest.mark.parametrize("prompt", ["Hö", list("Hö".encode())])
async def test_echo(make_server: MakeServer, prompt: object) -> None:
    """The prompt stands before the text once, and stop strings are not looked for in it."""
    server = make_server(Script(ids(" there", end=True), delay_s=0.001))
    assert (await server.complete(prompt, echo=True, stop="Hö")).json()["choices"][0]["text"] == "Hö there"
    found = events((await server.complete(prompt, echo=True, stream=True)).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in found[:-1]) == "Hö there"


async def test_logprobs(make_server: MakeServer) -> None:
    server = make_server(Script(ids("aöb", end=True)))
    logprobs = (await server.complete(logprobs=2)).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "\ufffd", "\ufffd", "b"]
    assert logprobs["bytes"] == [[97], [0xC3], [0xB6], [98]]
    assert logprobs["text_offset"] == [0, 1, 2, 2]
    assert logprobs["token_logprobs"] == [-1.5] * 4
    assert logprobs["top_logprobs"][0] == {"b": -0.25, "a": -1.5}
    none = (await server.complete(logprobs=0)).json()["choices"][0]["logprobs"]
    assert none["top_logprobs"][0] == {"a": -1.5}
    found = events((await server.complete(logprobs=2, stream=True)).text)
    parts = [chunk["choices"][0]["logprobs"] for chunk in found[:-1]]
    for key, value in logprobs.items():
        assert [item for part in parts for item in part[key]] == value


async def test_stream_of_several(make_server: MakeServer) -> None:
    server = make_server(Script(ids("xy", end=True), delay_s=0.001))
    options = {"include_usage": True}
    response = await server.complete(["ab", "c"], stream=True, stream_options=options, return_token_ids=True)
    found = events(response.text)
    assert found[-2]["choices"] == [] and found[-2]["usage"]["total_tokens"] == 9
    texts, prompts = ["", ""], [[], []]
    for chunk in found[:-2]:
        choice = chunk["choices"][0]
        texts[choice["index"]] += choice["text"]
        prompts[choice["index"]] += choice.get("prompt_token_ids", [])
    assert texts == ["xy", "xy"] and prompts == [[97, 98], [99]]


async def test_no_chat_template(tokenizer, info) -> None:
    server = Server(
        ScriptedService(lambda request: Script(ids("a", end=True)), info), tokenizer, None, ServeConfig("tea")
    )
    assert (await server.complete()).status_code == 200
    response = await server.chat()
    assert response.status_code == 400 and "chat template" in response.json()["error"]["message"]


async def test_min_tokens_of_several_prompts(make_server: MakeServer) -> None:
    """A prompt that leaves less room than min_tokens does not lower it for the others."""
    server = make_server(Script(ids("ab" * 20, end=True)))
    response = await server.complete([[65] * 4090, [65]], min_tokens=30, max_tokens=40, stop="b")
    first, second = response.json()["choices"]
    assert (first["text"], first["finish_reason"]) == ("ababab", "length")
    assert (len(second["text"]), second["stop_reason"]) == (31, "b")
