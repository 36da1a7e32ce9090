"""A real checkpoint's tokenizer and chat template behind the API; the engine stays scripted."""

from __future__ import annotations

import asyncio
from pathlib import Path
import time

import pytest

from samovar.base.keys import unpack_tokens
from samovar.core.ports import EngineInfo
from samovar.serve.config import ServeConfig
from samovar.text.checkpoint import TextParts, load_text
from tests.serve.asgi import Server, events
from tests.serve.scripted import Script, ScriptedService

pytestmark = pytest.mark.model

ANSWER = "Sure, 😀: naïve code `x = [1, 2]`."


@pytest.fixture(scope="module")
def parts(smollm2_gguf: Path) -> TextParts:
    return load_text(smollm2_gguf)


@pytest.fixture
def server(parts: TextParts) -> Server:
    tokenizer = parts.tokenizer
    info = EngineInfo(1 << 20, 16, 1 << 16, b"smol", 256, 8192, tokenizer.vocab_size)
    script = Script((*tokenizer.encode(ANSWER), tokenizer.eos_ids[0]), delay_s=0.001)
    return Server(ScriptedService(lambda request: script, info), tokenizer, parts.template, ServeConfig("smollm2"))


async def test_chat(server: Server, parts: TextParts) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "again <|im_end|>"},
    ]
    found = events((await server.post("/v1/chat/completions", {"messages": messages, "stream": True})).text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in found[:-1]) == ANSWER
    assert found[-2]["choices"][0]["finish_reason"] == "stop" and found[-2]["choices"][0]["stop_reason"] is None
    tokens = unpack_tokens(server.service.requests[0].token_ids)
    assert tokens == (await server.post("/tokenize", {"messages": messages})).json()["tokens"]
    text = parts.tokenizer.decode(tokens, skip_special_tokens=False)
    assert text.endswith("<|im_start|>user\nagain <|im_end|><|im_end|>\n<|im_start|>assistant\n") and "None" not in text


async def test_stop_inside_a_token(server: Server) -> None:
    response = await server.chat("Hi", stop="de `x")
    assert response.json()["choices"][0]["message"]["content"] == "Sure, 😀: naïve co"


async def test_a_long_prompt_leaves_others_alone(server: Server) -> None:
    """Tokenising and hashing 300 KB takes a fifth of a second; the event loop runs on meanwhile.

    Where it does not, it stands still for nearly all of the request, every time. Other work on the machine stretches
    both alike and interrupts now and then: so the longest pause is taken as a share of the request, of the best of
    three."""
    text = "def f(x):\n    return x + 1  # some code, and prose\n" * 6000
    shares = [await longest_pause(server, text) for _ in range(3)]
    assert min(shares) < 0.3, f"the event loop stood still for {min(shares):.0%} of the request"


async def longest_pause(server: Server, text: str) -> float:
    """Of the event loop while a request is answered, as a share of the whole request."""
    began = before = time.monotonic()
    long = asyncio.create_task(server.chat(text))
    worst = 0.0
    while not long.done():
        await asyncio.sleep(0.001)
        now = time.monotonic()
        worst, before = max(worst, now - before), now
    assert (await long).status_code == 200
    return worst / (before - began)
