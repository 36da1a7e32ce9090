"""Content blocks do not depend on where an output is cut."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from samovar.serve.anthropic.blocks import Blocks, content_of
from samovar.text.answer import ReasoningDelta, TextDelta
from samovar.text.formats.reasoning import REASONING_FORMATS
from samovar.text.formats.table import FORMATS
from tests.serve.anthropic.conftest import fold

OUTPUTS = [
    "</think>plain",
    "</think> \n",
    'I see.</think>\n\nText é😀\n<tool_call>{"name": "f", "arguments": {"a": "}\\"</tool_call>", "b": {}}}</tool_call>',
    '</think><tool_call>{"name": "f"}</tool_call>\n \n<tool_call>{"name": "g", "arguments": {}}</tool_call> end ',
    '</think>a<tool_call>{"name": "f", "arguments": {"a": [1, 2], "b": "cut of',
    '</think>a<tool_call>{"name": "f", "arguments": [1]}</tool_call>b',
]


def events(pieces: list[str]) -> list[dict[str, Any]]:
    parser = REASONING_FORMATS["qwen3"].make(FORMATS["hermes"].make({}), inside=True)
    blocks = Blocks(lambda call: f"toolu_{call}", "signed")
    found = [event for piece in pieces for happened in parser.push(piece) for event in blocks.take(happened)]
    found += [event for happened in parser.finish() for event in blocks.take(happened)]
    return [*found, *blocks.finish()]


def streamed(pieces: list[str]) -> list[dict[str, Any]]:
    start = {"type": "message_start", "message": {"content": [], "stop_reason": None, "usage": {}}}
    end = [{"type": "message_delta", "delta": {}, "usage": {}}, {"type": "message_stop"}]
    content: list[dict[str, Any]] = fold([start, *events(pieces), *end])["content"]
    return content


@pytest.mark.parametrize("text", OUTPUTS)
def test_cuts(text: str) -> None:
    whole = json.loads(msgspec.json.encode(content_of(events([text]))))
    assert whole or not text.partition("</think>")[2].strip()
    assert streamed(list(text)) == whole
    for at in range(len(text) + 1):
        assert streamed([text[:at], text[at:]]) == whole
    chance = random.Random(0)
    for _ in range(200):
        cuts = sorted(chance.choices(range(len(text) + 1), k=4))
        assert streamed([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole


def test_whitespace_alone_is_no_block() -> None:
    assert [block["type"] for block in streamed([OUTPUTS[3]])] == ["tool_use", "tool_use", "text"]
    assert streamed([OUTPUTS[3]])[2]["text"] == " end "


def test_a_call_that_is_no_object() -> None:
    text, call, more = streamed([OUTPUTS[5]])
    assert (text["text"], more["text"]) == ("a", "b") and call["input"] == {"_unparsed": "[1]"}


def test_a_thought_in_pieces_is_signed_once() -> None:
    blocks = Blocks(lambda call: f"toolu_{call}", "signed")
    pieces = [ReasoningDelta("a"), ReasoningDelta("b"), TextDelta(" "), ReasoningDelta("c"), TextDelta("d")]
    content = content_of([event for piece in pieces for event in blocks.take(piece)] + blocks.finish())
    assert content == [
        {"type": "thinking", "thinking": "abc", "signature": "signed"},
        {"type": "text", "text": "d"},
    ]
