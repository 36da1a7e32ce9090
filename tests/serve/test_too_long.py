"""Prompts that are far too long, and what a prompt costs once it is taken."""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from typing import Any

import msgspec
import pytest

from samovar.core.ports import EngineInfo
from samovar.serve.config import ServeConfig
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from tests.serve.asgi import Server
from tests.serve.conftest import CHATML, MakeServer, ids
from tests.serve.scripted import Script, ScriptedService

LONG = "hello " * 200_000
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
    "prompt": ("/v1/completions", {"prompt": LONG}),
    "prompt[1]": ("/v1/completions", {"prompt": ["a", LONG]}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("param", BODIES)
async def test_far_too_long_is_refused_unencoded(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, param: str, stream: bool
) -> None:
    path, body = BODIES[param]
    encoded: list[int] = []
    encode = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda self, text, **more: encoded.append(len(text)) or encode(self, text, **more)
    )
    server = make_server()
    response = await server.post(path, {**body, "stream": stream})
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == param
    found = re.search(r"4096 tokens.*at least (\d+) tokens", error["message"])
    assert found and 4096 < int(found[1]) <= len(LONG) + 100
    assert all(length < 10 for length in encoded) and not server.service.requests


async def test_counting_tokens_has_no_limit(make_server: MakeServer) -> None:
    server = make_server()
    answer = await server.post("/tokenize", {"prompt": "hello " * 2000})
    assert answer.json()["count"] == 12_000
    answer = await server.post("/tokenize", {"messages": [{"role": "user", "content": "hello " * 2000}]})
    assert answer.json()["count"] > 12_000


async def test_the_bound_refuses_nothing_that_fits(make_server: MakeServer) -> None:
    server = make_server(Script(ids("a")))
    assert (await server.complete("a" * 4095)).status_code == 200
    error = (await server.complete("a" * 4096)).json()["error"]
    assert error["code"] == "context_length_exceeded" and "4096" in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_is_held_once(tokenizer: Tokenizer, info: EngineInfo, path: str, stream: bool) -> None:
    """While it is answered: as the packed ids that the engine took, 4 bytes a token. Neither the body, nor a list of
    ids; of a conversation's text, what is remembered for the next turn, which is bounded for all together."""
    tokens = 400_000
    roomy = msgspec.structs.replace(info, max_model_len=2 * tokens, block_tokens=4096)
    service = ScriptedService(lambda request: Script(ids("a" * 50), delay_s=0.05), roomy)
    server = Server(service, tokenizer, ChatTemplate({"default": CHATML}, {}), ServeConfig(model="tea"))
    await server.exchange(
        path, {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    ).done()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        text = "x" * tokens
        prompt = {"prompt": text} if path == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
        exchange = server.exchange(path, {**prompt, "stream": stream, "max_tokens": 50})
        del text, prompt
        await exchange.until(lambda e: len(service.requests) == 2 and (not stream or len(e.sent) > 1), timeout_s=20)
        await asyncio.sleep(0.05)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(service.requests[1].token_ids) >= 4 * tokens and service.open
    # A conversation is remembered as well: its text and the ids of its pieces.
    assert held < (10.5 if path == "/v1/chat/completions" else 4.5) * tokens, held / tokens
    exchange.disconnect()
    await exchange.done()
