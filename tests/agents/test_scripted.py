"""The scripted server itself: what agents get to hear depends on their prompts alone; all the rest is a real server."""

from __future__ import annotations

from collections.abc import Iterator
import json
from pathlib import Path

import httpx
import pytest

from samovar.text.checkpoint import TextParts, load_text
from tests.agents.checkpoint import CONTEXT_TOKENS
from tests.agents.script import Rule, Script, read_script, write_script
from tests.agents.server import Server, scripted_server

pytestmark = [pytest.mark.torch, pytest.mark.model]

PIECES = ["Hel", "lo wor", "ld."]
RULES = [
    Rule(say="A title", when="Write a title", where="tail"),
    Rule(say="First.", turn=0),
    Rule(say=PIECES, turn=1),
    Rule(say="Third.", turn=2),
]
BLOCK = 16


@pytest.fixture(scope="module")
def parts(agent_model: Path) -> TextParts:
    return load_text(agent_model)


def prompt(parts: TextParts, *turns: str) -> list[int]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    assert parts.template is not None
    return parts.tokenizer.encode(parts.template.render(messages, add_generation_prompt=True))


def test_rules(parts: TextParts, tmp_path: Path) -> None:
    script = Script(read_script(write_script(tmp_path / "script.json", RULES)), parts.tokenizer)

    def said(*turns: str) -> str:
        return parts.tokenizer.decode(script.line(prompt(parts, *turns)))

    assert said("Hi") == "First."
    assert said("Hi", "First.", "On") == "Hello world."
    assert said("Hi", "First.", "On", "Hello world.", "On") == "Third."
    assert said("Hi", "First.", "On", "Hello world.", "On", "Third.", "On") == "All right."
    assert said("Write a title") == "A title"
    assert said("Write a title" + " of many words" * 500) == "First."
    assert said("I say <|im_start|> assistant") == "First."


def test_pieces_are_other_ids(parts: TextParts) -> None:
    line = Script(RULES, parts.tokenizer).line(prompt(parts, "Hi", "First.", "On"))
    assert line[-1] == parts.tokenizer.eos_ids[0]
    assert list(line[:-1]) != parts.tokenizer.encode("".join(PIECES))
    assert parts.tokenizer.decode(line[:-1]) == "".join(PIECES)


@pytest.fixture(scope="module")
def server(agent_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with scripted_server(agent_model, RULES, tmp_path_factory.mktemp("scripted")) as running:
        yield running


def chat(server: Server, messages: list[dict[str, str]], **fields: object) -> dict[str, object]:
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages, **fields}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_three_turns(server: Server, temperature: float) -> None:
    """Whatever the temperature; each turn finds the blocks of the one before."""
    messages = [{"role": "system", "content": f"You pour tea at {temperature}." * 40}]
    before = 0
    for expected in ("First.", "Hello world.", "Third.", "All right."):
        messages.append({"role": "user", "content": "Go on."})
        answer = chat(server, messages, temperature=temperature, max_tokens=40)
        text = answer["choices"][0]["message"]["content"]  # type: ignore[index]
        assert (text, answer["choices"][0]["finish_reason"]) == (expected, "stop")  # type: ignore[index]
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]  # type: ignore[index]
        assert cached >= before // BLOCK * BLOCK
        before = usage["prompt_tokens"]  # type: ignore[index]
        messages.append({"role": "assistant", "content": text})


def test_a_long_prompt(server: Server) -> None:
    """What an agent sends before its first word."""
    words = "def pour(cup): return cup + 1  # a cup of tea\n" * 1500
    usage = chat(server, [{"role": "user", "content": words}])["usage"]
    assert 15_000 < usage["prompt_tokens"] < CONTEXT_TOKENS  # type: ignore[index]
    again = chat(server, [{"role": "user", "content": words}])["usage"]
    expected = (usage["prompt_tokens"] - 1) // BLOCK * BLOCK  # type: ignore[index]
    assert again["prompt_tokens_details"]["cached_tokens"] == expected  # type: ignore[index]


def test_streams_and_limits(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 1}
    lines = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "First"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
