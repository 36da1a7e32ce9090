"""Reasoning blocks around answers."""

from __future__ import annotations

import pytest

from samovar.text.answer import Answer, Call, ReasoningDelta, TextDelta, gather
from samovar.text.formats.reasoning import REASONING_FORMATS, detect_reasoning
from samovar.text.formats.table import FORMATS
from tests.text.formats.parsing import cut, events_of

QWEN = REASONING_FORMATS["qwen3"]
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
F = Call("f", "{}")


@pytest.mark.parametrize(
    ("output", "inside", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nHi", False, Answer("Hi", "Hm.")),
        ("\n<think>Hm.</think>Hi", False, Answer("Hi", "Hm.")),
        ("Hm.\n\nSo:\n</think>\n\nHi", True, Answer("Hi", "Hm.\n\nSo:")),
        ("<think>\nHm.\n</think>\nHi", True, Answer("Hi", "Hm.")),
        (f"Hm.\n</think>\n\n{CALL}", True, Answer("", "Hm.", (F,))),
        (f"Hm {CALL}?\n</think>\n\nHi\n{CALL}", True, Answer("Hi", f"Hm {CALL}?", (F,))),
        ("<think>\n\n</think>\n\nHi", False, Answer("Hi")),
        ("<think>\ncut </thi", False, Answer("", "cut </thi")),
        ("cut\n\n", True, Answer("", "cut\n\n")),
        ("Hi <think>no</think>", False, Answer("Hi <think>no</think>")),
        (" <thin", False, Answer(" <thin")),
        ("  spaces", True, Answer("", "  spaces")),
        ("", True, Answer()),
    ],
)
def test_reasoning_is_apart(output: str, inside: bool, answer: Answer) -> None:
    def events(pieces: list[str]) -> object:
        return events_of(QWEN.make(FORMATS["hermes"].make({}), inside=inside), pieces)

    whole = events([output])
    assert gather(whole) == answer  # type: ignore[arg-type]
    assert events(list(output)) == whole
    for place in range(len(output)):
        assert events(cut(output, [place])) == whole


def test_reasoning_flows() -> None:
    parser = QWEN.make(FORMATS["hermes"].make({}), inside=True)
    pieces = ("\nLet", " me\n", "\nsee</", "thi", "nk>", "\n\nHi")
    assert [parser.push(piece) for piece in pieces] == [
        [ReasoningDelta("Let")],
        [ReasoningDelta(" me")],
        [ReasoningDelta("\n\nsee")],
        [],
        [],
        [TextDelta("Hi")],
    ]


def test_other_marks() -> None:
    parser = REASONING_FORMATS["mistral"].make(FORMATS["mistral"].make({}), inside=False)
    answer = gather(events_of(parser, ['[THINK]a[/THINK]b[TOOL_CALLS][{"name": "f", "arguments": {}}]']))
    assert answer == Answer("b", "a", (F,))


def test_whether_a_prompt_opens_a_block() -> None:
    assert QWEN.opened_by("<|im_start|>assistant\n<think>\n")
    assert not QWEN.opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not QWEN.opened_by("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ '<think>\\n' + m.reasoning_content + '\\n</think>' }}", "qwen3"),
        ("{% set content = content.split('</think>')[-1] %}", "qwen3"),
        ("[THINK]{{ m.thinking }}[/THINK]", "mistral"),
        ("<seed:think>", "seed_oss"),
        ("I think: {{ m.content }}", None),
    ],
)
def test_templates_tell(template: str, name: str | None) -> None:
    assert detect_reasoning(template) == name


def test_names() -> None:
    assert {"deepseek_r1", "qwen3", "mistral"} <= set(REASONING_FORMATS)
    assert all(format.name == name for name, format in REASONING_FORMATS.items())
