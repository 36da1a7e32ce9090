"""Events come as early as they are certain, and at a cost that is linear in the output."""

from __future__ import annotations

import time

import pytest

from samovar.text.answer import AnswerEvent, CallArguments, CallBegin, CallEnd, TextDelta, gather
from samovar.text.formats.table import FORMATS


def _pushed(family: str, *pieces: str) -> list[list[AnswerEvent]]:
    parser = FORMATS[family].make({"f": {"properties": {"s": {"type": "string"}, "i": {"type": "integer"}}}})
    return [*map(parser.push, pieces), parser.finish()]


@pytest.mark.parametrize("family", sorted(FORMATS))
def test_text_flows(family: str) -> None:
    assert _pushed(family, "Hello", " wor", "ld <", "b>")[:3] == [
        [TextDelta("Hello")],
        [TextDelta(" wor")],
        [TextDelta("ld <" if "<" not in "".join(m[0] for m in FORMATS[family].markers) else "ld ")],
    ]


def test_json_arguments_flow() -> None:
    pieces = ('<tool_call>\n{"name": "f"', ', "arguments": {"a', '": "x</tool', '_call>"}', "}\n</tool_call>")
    assert _pushed("hermes", *pieces) == [
        [CallBegin(0, "f")],
        [CallArguments(0, '{"a')],
        [CallArguments(0, '": "x</tool')],
        [CallArguments(0, '_call>"}')],
        [CallEnd(0)],
        [],
    ]


def test_arguments_wait_for_the_name_only() -> None:
    pieces = ('<tool_call>{"arguments": {"a": 1}', ', "name": "f"', "}")
    assert _pushed("hermes", *pieces)[:3] == [[], [CallBegin(0, "f"), CallArguments(0, '{"a": 1}')], [CallEnd(0)]]


def test_string_values_between_tags_flow_others_wait() -> None:
    pieces = ("<function=f>", "<parameter=s>\nab", "c\n", "d</parameter><parameter=i>1", "2</parameter></function>")
    assert _pushed("qwen3_coder", *pieces)[:5] == [
        [CallBegin(0, "f")],
        [CallArguments(0, '{"s": "ab')],
        [CallArguments(0, "c")],
        [CallArguments(0, '\\nd", "i": ')],
        [CallArguments(0, "12}"), CallEnd(0)],
    ]


def test_python_strings_flow() -> None:
    assert _pushed("pythonic", "[f(a='x", "y", "\\", "n'", ")")[:5] == [
        [CallBegin(0, "f"), CallArguments(0, '{"a": "x')],
        [CallArguments(0, "y")],
        [],
        [CallArguments(0, '\\n"')],
        [CallArguments(0, "}"), CallEnd(0)],
    ]


def test_a_bare_json_answer_flows() -> None:
    """Its first key shows that it is no call."""
    assert _pushed("llama3_json", '{"city', '": "x', '"', "}")[:3] == [
        [],
        [TextDelta('{"city": "x')],
        [TextDelta('"')],
    ]


def test_prose_behind_a_marker_is_held_for_a_name_s_length_only() -> None:
    events = _pushed("mistral", "[TOOL_CALLS]", *["prose "] * 60)
    assert gather([event for push in events[:50] for event in push]).text.startswith("[TOOL_CALLS]prose")


_MEGABYTE = 1 << 20
_LONG = {
    "plain": ("hermes", "some words " * (_MEGABYTE // 11)),
    "white space": ("hermes", " \n" * (_MEGABYTE // 2)),
    "marker beginnings": ("hermes", "<tool" * (_MEGABYTE // 5)),
    "markers": ("hermes", "<tool_call>" * (_MEGABYTE // 11)),
    "arguments": ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "' + '\\"{<' * (_MEGABYTE // 4)),
    "arguments first": ("hermes", '<tool_call>{"arguments": {"a": "' + "xyz " * (_MEGABYTE // 4) + '"}, "name": "f"}'),
    "nested": ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": ' + "[" * _MEGABYTE),
    "nested Python": ("pythonic", "[f(a=" + "[" * _MEGABYTE),
    "closing tags": ("qwen3_coder", "<function=f><parameter=s>" + "</parameter>  " * (_MEGABYTE // 14)),
    "a number": ("glm45", "<tool_call>f<arg_key>i</arg_key><arg_value>" + "1" * _MEGABYTE),
    "objects": ("llama3_json", '{"a": [' + '{"name": "f", "parameters": {}},\n' * (_MEGABYTE // 33)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", _LONG)
def test_a_megabyte_takes_seconds(kind: str) -> None:
    family, text = _LONG[kind]
    parser = FORMATS[family].make({"f": {"properties": {"s": {"type": "string"}, "i": {"type": "integer"}}}})
    started_s = time.process_time()
    size = 0
    for at in range(0, len(text), 4):
        for event in parser.push(text[at : at + 4]):
            size += len(event.text) if isinstance(event, TextDelta | CallArguments) else 0
    size += sum(len(event.text) for event in parser.finish() if isinstance(event, TextDelta | CallArguments))
    # Ten times what it takes; a parser that looks back at all of it would take hours.
    assert time.process_time() - started_s < 20
    assert size > _MEGABYTE * 0.9
