"""Messages to the inner form."""

from __future__ import annotations

import re
from typing import Any

import pytest

from samovar.base.errors import InvalidField
from samovar.serve.anthropic.turns import inner_messages


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def use(id: str, name: str = "f", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(id: str, *content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **({"content": content[0]} if content else {}), **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def inner(*messages: Any, system: Any = None) -> list[dict[str, Any]]:
    return inner_messages(system, list(messages))


def test_system_as_text_and_as_blocks() -> None:
    blocks = [text("one"), text("two", cache_control={"type": "ephemeral", "ttl": "1h"}), text("three")]
    hi = {"role": "user", "content": "Hi"}
    assert inner(hi, system=blocks) == inner(hi, system="one\ntwo\nthree")
    assert inner(hi, system=blocks)[0] == {"role": "system", "content": "one\ntwo\nthree"}
    assert [inner(hi, system=nothing) for nothing in (None, "", [])] == [[hi]] * 3


@pytest.mark.parametrize("content", [None, "", [], [text("")]])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_empty_contents(role: str, content: Any) -> None:
    assert inner({"role": role, "content": content}) == [{"role": role, "content": ""}]


def test_an_assistants_turn() -> None:
    turn = assistant(
        {"type": "thinking", "thinking": "Hmm. ", "signature": "x"},
        {"type": "redacted_thinking", "data": "secret"},
        text("I look"),
        use("toolu_1", "ls", path="a", all=True),
        {"type": "thinking", "thinking": "And.", "signature": "y"},
        text(" there."),
        use("toolu_2"),
    )
    assert inner(turn) == [
        {
            "role": "assistant",
            "content": "I look there.",
            "reasoning_content": "Hmm. And.",
            "tool_calls": [
                {
                    "id": "toolu_1",
                    "type": "function",
                    "function": {"name": "ls", "arguments": '{"path": "a", "all": true}'},
                },
                {"id": "toolu_2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        }
    ]


def test_arguments_keep_their_order() -> None:
    [message] = inner(assistant(use("1", "write", path="a", content="b")))
    assert message["tool_calls"][0]["function"]["arguments"] == '{"path": "a", "content": "b"}'


def test_results_come_before_text_in_the_order_of_the_calls() -> None:
    ids = [f"t{at}" for at in range(8)]
    order = [5, 0, 7, 3, 1, 2, 6, 4]
    results = [result(ids[at], f"r{at}", cache_control={"type": "ephemeral"}) for at in order]
    found = inner(
        assistant(*(use(id, f"f{id}") for id in ids)), user(text("before"), *results, text("remember"), text("this"))
    )[1:]
    assert [message["content"] for message in found[:8]] == [f"r{at}" for at in range(8)]
    assert [(message["tool_call_id"], message["name"]) for message in found[:8]] == [(id, f"f{id}") for id in ids]
    assert found[8:] == [{"role": "user", "content": "before\nremember\nthis"}]


def test_missing_doubled_and_unknown_results() -> None:
    found = inner(
        assistant(use("a"), use("b"), use("c")),
        user(result("x", "stray"), result("c", "third"), result("a", "first"), result("a", "again")),
    )[1:]
    assert [(message["tool_call_id"], message["content"]) for message in found] == [
        ("a", "first"), ("a", "again"), ("c", "third"), ("x", "stray"),
    ]  # fmt: skip
    assert "name" not in found[-1]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ((), ""),
        ((None,), ""),
        (([],), ""),
        (("out",), "out"),
        (([text("one", cache_control={"type": "ephemeral"}), text("two")],), "one\ntwo"),
        (([{"type": "tool_reference", "tool_name": "Search"}],), "Search"),
        (("\x00\x1b[31mred\r\n",), "\x00\x1b[31mred\r\n"),
    ],
)
def test_content_of_results(content: tuple[Any, ...], shown: str) -> None:
    assert inner(user(result("a", *content))) == [{"role": "tool", "tool_call_id": "a", "content": shown}]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ((), "Error"),
        (("no such file",), "Error: no such file"),
        (("Error: gone",), "Error: gone"),
        (("<tool_use_error>bad</tool_use_error>",), "<tool_use_error>bad</tool_use_error>"),
    ],
)
def test_failed_results_say_so(content: tuple[Any, ...], shown: str) -> None:
    [message] = inner(user(result("a", *content, is_error=True)))
    assert message["content"] == shown
    [message] = inner(user(result("a", *content, is_error=False)))
    assert message["content"] == (content[0] if content else "")


def test_system_messages_stay_where_they_are() -> None:
    found = inner(
        {"role": "user", "content": "a"},
        {"role": "system", "content": "9 left"},
        assistant(text("b")),
        {"role": "system", "content": [text("8"), text("left")]},
        system="head",
    )
    assert [(message["role"], message["content"]) for message in found] == [
        ("system", "head"), ("user", "a"), ("system", "9 left"), ("assistant", "b"), ("system", "8\nleft"),
    ]  # fmt: skip


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


@pytest.mark.parametrize(
    ("messages", "param", "wanted"),
    [
        (None, "messages", "array"),
        ([], "messages", "at least one"),
        (["x"], "messages[0]", "object"),
        ([{"role": "tool", "content": "x"}], "messages[0].role", "'tool'"),
        ([{"content": "x"}], "messages[0].role", "null"),
        ([{"role": "user", "content": 5}], "messages[0].content", "5"),
        ([user("x")], "messages[0].content[0]", "object"),
        ([user(text("a"), IMAGE)], "messages[0].content[1].type", "'image'"),
        ([user(result("a", [text("x"), IMAGE]))], "messages[0].content[0].content[1].type", "'image'"),
        ([user({"type": "document", "source": {}})], "messages[0].content[0].type", "'document'"),
        ([user({"type": "novel"})], "messages[0].content[0].type", "'novel'"),
        ([user({"text": "x"})], "messages[0].content[0].type", "null"),
        ([user({"type": ["text"], "text": "x"})], "messages[0].content[0].type", "text"),
        ([user({"type": "text", "text": None})], "messages[0].content[0].text", "null"),
        ([user(use("a"))], "messages[0].content[0].type", "'tool_use'"),
        ([assistant(result("a"))], "messages[0].content[0].type", "'tool_result'"),
        ([assistant({"type": "server_tool_use"})], "messages[0].content[0].type", "'server_tool_use'"),
        ([assistant({"type": "thinking", "thinking": 1})], "messages[0].content[0].thinking", "string"),
        ([assistant({**use("a"), "input": "{}"})], "messages[0].content[0].input", "object"),
        ([assistant({**use("a"), "id": ""})], "messages[0].content[0].id", "empty"),
        ([assistant({**use("a"), "name": None})], "messages[0].content[0].name", "null"),
        ([user({"type": "tool_result"})], "messages[0].content[0].tool_use_id", "null"),
        ([{"role": "system", "content": [IMAGE]}], "messages[0].content[0].type", "'image'"),
    ],
)
def test_faults_name_their_place(messages: Any, param: str, wanted: str) -> None:
    with pytest.raises(InvalidField, match=re.escape(wanted)) as caught:
        inner_messages(None, messages)
    assert caught.value.param == param and caught.value.message.startswith(param)


def test_faults_of_the_system() -> None:
    with pytest.raises(InvalidField) as caught:
        inner(user(text("x")), system=[text("a"), IMAGE])
    assert caught.value.param == "system[1].type"
