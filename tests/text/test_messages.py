"""Messages brought into the form a template takes."""

from __future__ import annotations

from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.text.messages import flatten_content, merge_adjacent, prepare
from samovar.text.template_traits import TemplateTraits


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ([], ""),
        (" a ", " a "),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "input_text", "text": "a"}], "a"),
        (["a", "b"], "a\nb"),
    ],
)
def test_content_becomes_a_string(content: object, text: str) -> None:
    assert flatten_content(content, "messages[4].content") == text


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ([{"type": "text", "text": "a"}, {"type": "image_url"}], "[1]", "'image_url'"),
        ([{"type": "text"}], "[0].text", "got null"),
        ([{}], "[0]", "null"),
        ([{"type": ["text"]}], "[0]", "text"),
        ([3], "[0]", "got 3"),
        (3, "", "got 3"),
        ({"type": "text", "text": "a"}, "", "array of parts"),
    ],
)
def test_what_is_not_text_is_refused(content: object, place: str, message: str) -> None:
    with pytest.raises(InvalidField, match=message) as error:
        flatten_content(content, "messages[4].content")
    assert error.value.param == f"messages[4].content{place}"
    assert str(error.value).startswith(f"{error.value.param}: ")


def test_the_place_is_counted_in_the_client_s_messages() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "user", "content": [7]}]
    with pytest.raises(InvalidField) as error:
        prepare(messages, TemplateTraits(merged_roles=frozenset({"user"})))
    assert error.value.param == "messages[2].content[0]"


def test_adjacent_messages_merge_as_paragraphs() -> None:
    messages = [
        {"role": "user", "content": "a", "name": "n"},
        {"role": "user", "content": "", "name": "other"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c", "tool_calls": [1], "reasoning_content": "r"},
        {"role": "assistant", "content": "", "tool_calls": [2], "reasoning_content": "s"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    before = [dict(message) for message in messages]
    assert merge_adjacent(messages) == [
        {"role": "user", "content": "a\n\nb", "name": "n"},
        {"role": "assistant", "content": "c", "tool_calls": [1, 2], "reasoning_content": "r\n\ns"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    assert messages == before
    assert merge_adjacent(messages, ()) == messages


def _call(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}


@pytest.mark.parametrize(
    ("arguments", "as_object", "as_string"),
    [
        ('{"a": "é"}', {"a": "é"}, '{"a": "é"}'),
        ({"a": "é"}, {"a": "é"}, '{"a": "é"}'),
        (" ", {}, "{}"),
        (None, {}, "{}"),
        ('{"a": ', '{"a": ', '{"a": '),
        ("[1]", "[1]", "[1]"),
        pytest.param("[" * 100_000, "[" * 100_000, "[" * 100_000, id="nested too deep to parse"),
    ],
)
def test_arguments_take_the_template_s_form(arguments: Any, as_object: Any, as_string: str) -> None:
    for string, expected in ((False, as_object), (True, as_string)):
        (message,) = prepare([_call(arguments)], TemplateTraits(string_arguments=string))
        assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}


def test_content_beside_calls_takes_the_template_s_form() -> None:
    null = TemplateTraits(null_content_with_calls=True)
    assert prepare([_call("")], null)[0]["content"] is None
    text, calls = prepare([{**_call(""), "content": "x"}], null)
    assert text == {"role": "assistant", "content": "x"}
    assert (calls["content"], len(calls["tool_calls"])) == (None, 1)
    assert len(prepare([{**_call(""), "content": "x"}], TemplateTraits())) == 1
    assert prepare([_call("")], TemplateTraits())[0]["content"] == ""
    assert prepare([{"role": "user", "content": None, "tool_calls": []}], null) == [{"role": "user", "content": ""}]


def test_odd_calls_are_left_to_the_template() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": ["x", {"function": None}]}
    assert prepare([message], TemplateTraits()) == [message]
