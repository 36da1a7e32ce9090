"""Tools in the text of messages, for templates that know none."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import InvalidField
from samovar.text.answer import Answer, Call
from samovar.text.formats.tool_prompt import with_tools
from tests.text.formats.parsing import parse

TOOL = {"type": "function", "function": {"name": "f", "description": "é", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Hi"}


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_system_message_tells_of_the_tools() -> None:
    system = {"role": "system", "content": "Be kind."}
    (first, second) = with_tools([system, USER], [TOOL])
    text = first["content"]
    assert text.startswith("Be kind.\n\n# Tools\n") and second is USER
    assert "<tools>\n" + json.dumps(TOOL, ensure_ascii=False) + "\n</tools>" in text
    assert "<tool_call>\n" in text and "<tool_response>" in text
    assert with_tools([USER], [TOOL]) == [{"role": "system", "content": text.removeprefix("Be kind.\n\n")}, USER]
    assert with_tools([{"role": "system", "content": None}], [TOOL])[0]["content"].startswith("# Tools")
    assert with_tools([USER], []) == [USER]


def test_calls_and_results_become_text() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "Look.", "tool_calls": [_call("f", '{"b":1,  "a": 2}'), _call("g", None)]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "x"}]},
        {"role": "tool", "tool_call_id": "2", "content": None},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [_call("h", {"b": "é", "a": 1})],
        },
        {"role": "tool", "content": "y"},
        {"role": "assistant", "content": None},
        USER,
    ]
    before = copy.deepcopy(messages)
    assert with_tools(messages, []) == [
        USER,
        {
            "role": "assistant",
            "content": 'Look.\n<tool_call>\n{"name": "f", "arguments": {"b":1,  "a": 2}}\n</tool_call>\n'
            '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
        },
        {"role": "user", "content": "<tool_response>\nx\n</tool_response>\n<tool_response>\n\n</tool_response>"},
        {
            "role": "assistant",
            "content": '<tool_call>\n{"name": "h", "arguments": {"b": "é", "a": 1}}\n</tool_call>',
            "reasoning_content": "r",
        },
        {"role": "user", "content": "<tool_response>\ny\n</tool_response>"},
        {"role": "assistant", "content": ""},
        USER,
    ]
    assert messages == before


def test_null_empty_and_no_content_are_the_same() -> None:
    texts = [
        with_tools([{"role": "assistant", "content": content, "tool_calls": [_call("f", "{}")]}], [])[0]["content"]
        for content in (None, "", [])
    ]
    assert texts == ['<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'] * 3


def test_a_turn_that_was_cut_stays_as_it_was() -> None:
    (message,) = with_tools([{"role": "assistant", "content": "", "tool_calls": [_call("f", '{"a": "x')]}], [])
    assert message["content"] == '<tool_call>\n{"name": "f", "arguments": {"a": "x}\n</tool_call>'


def test_content_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidField) as error:
        with_tools([USER, {"role": "tool", "content": [{"type": "image_url"}]}], [])
    assert error.value.param == "messages[1].content[0]"


_NAMES = st.text(st.sampled_from("abz_-.09"), min_size=1, max_size=70)
_VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v), max_leaves=5)
_OBJECTS = st.dictionaries(st.text(), _VALUES, max_size=3).map(json.dumps)


@settings(max_examples=80, deadline=None)
@given(st.text("ab <{🙂", max_size=9).map(str.strip), st.lists(st.tuples(_NAMES, _OBJECTS), min_size=1, max_size=3))
def test_what_is_rendered_reads_back_the_same(text: str, made: list[tuple[str, str]]) -> None:
    message = {"role": "assistant", "content": text, "tool_calls": [_call(*call) for call in made]}
    (rendered,) = with_tools([message], [])
    assert parse("hermes", rendered["content"]) == Answer(text, "", tuple(Call(*call) for call in made))
