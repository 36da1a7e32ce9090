"""Digests of conversations, what is remembered of them, and lines that do not count."""

from __future__ import annotations

from copy import deepcopy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError, InvalidField
from samovar.text.answer import Answer, Call
from samovar.text.messages import Message, flatten
from samovar.text.turns.differences import Departure, LastPrompts, Outline
from samovar.text.turns.history import Histories, after, answer_key, beginning, returned_key
from samovar.text.turns.volatile import VolatileLines
from tests.text.turns.conversations import messages

ROOT = b"r" * 16
LOOSE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 1), st.just(1.0), st.sampled_from(["", "1", "a"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=5,
)


def same(message: Message) -> Message:
    return message


def plain(value: list[Any]) -> list[Any]:
    """How a message reads: order of keys, and 1 is not True."""
    return json.loads(json.dumps(value), object_pairs_hook=lambda pairs: ["object", *map(list, pairs)])  # type: ignore[no-any-return]


@given(st.lists(messages(), min_size=1, max_size=4), st.data())
def test_remembered_histories_are_those_made_anew(
    conversations: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    remembered = Histories(VolatileLines(), same, max_bytes=20_000)
    said: list[dict[str, Any]] = []
    for more in conversations:
        said = said + more
        if data.draw(st.integers(0, 2)) == 0:
            said = deepcopy(said)
            said[data.draw(st.integers(0, len(said) - 1))]["extra"] = data.draw(LOOSE)
        for end in (len(said), data.draw(st.integers(1, len(said)))):
            anew = Histories(VolatileLines(), same).of(deepcopy(said[:end]), ROOT)
            found = remembered.of(deepcopy(said[:end]), ROOT)
            assert plain(list(found.flat)) == plain(list(anew.flat)) and list(found.digests) == list(anew.digests)
            remembered.check()


@given(LOOSE, LOOSE)
def test_digests_differ_where_messages_do(one: Any, other: Any) -> None:
    first, second = ({"role": "user", "content": "a", "extra": value} for value in (one, other))
    same = json.dumps(one) == json.dumps(other)
    assert (after(ROOT, first) == after(ROOT, second)) == same


def test_sizes_keep_fields_apart() -> None:
    pairs = [
        ({"role": "user", "content": "ab"}, {"role": "usera", "content": "b"}),
        ({"role": "user", "content": "a", "name": "b"}, {"role": "user", "content": "ab", "name": ""}),
        ({"role": "user", "content": "a"}, {"content": "a", "role": "user"}),
        ({"a": "X 0\n"}, {"a 4\nX": ""}),
    ]
    for one, other in pairs:
        assert after(ROOT, one) != after(ROOT, other)
    assert beginning(b"a") != beginning(b"b")


def test_the_place_of_a_fault_is_counted_from_the_start() -> None:
    histories = Histories(VolatileLines(), same)
    said: list[dict[str, Any]] = [{"role": "user", "content": "a"}]
    histories.of(said, ROOT)
    with pytest.raises(InvalidField, match=r"messages\[2\]\.content\[0\]"):
        histories.of([*said, {"role": "assistant", "content": "b"}, {"role": "user", "content": [7]}], ROOT)


def message(answer: Answer, **fields: Any) -> dict[str, Any]:
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in answer.calls
    ]
    return {
        "role": "assistant",
        "content": answer.text,
        "reasoning_content": answer.reasoning,
        "tool_calls": calls,
        **fields,
    }


ANSWER = Answer(" Text.\n", "\nhm", (Call("f", '{"b": 1.0, "a": {"c": [2.0]}}'), Call("g", "raw input {")))
SAME = [
    {},
    {"content": "Text."},
    {"reasoning_content": "", "reasoning": "hm "},
    {"tool_calls": [
        {"id": "x", "function": {"name": "f", "arguments": '{"a":{"c":[2]},"b":1}'}},
        {"type": "custom", "custom": {"name": "g", "input": "raw input {"}},
    ]},
    {"tool_calls": [
        {"id": "x", "function": {"name": "f", "arguments": {"a": {"c": [2]}, "b": 1}}},
        {"function": {"name": "g", "arguments": '{"input": "raw input {"}'}},
    ]},
]  # fmt: skip
OTHER = [
    {"content": "Text"},
    {"reasoning_content": "hmm"},
    {"reasoning_content": ""},
    {"tool_calls": []},
    {"tool_calls": message(ANSWER)["tool_calls"][::-1]},
    {"tool_calls": message(ANSWER)["tool_calls"][:1]},
    {
        "tool_calls": [
            {"function": {"name": "f", "arguments": '{"b": 1.5, "a": {"c": [2.0]}}'}},
            message(ANSWER)["tool_calls"][1],
        ]
    },
    {"tool_calls": ["no call", 3]},
]


@pytest.mark.parametrize("change", SAME)
def test_an_answer_is_known_again(change: dict[str, Any]) -> None:
    assert returned_key(ROOT, message(ANSWER, **change)) == answer_key(ROOT, ANSWER)


@pytest.mark.parametrize("change", OTHER)
def test_another_answer_is_not(change: dict[str, Any]) -> None:
    assert returned_key(ROOT, message(ANSWER, **change)) != answer_key(ROOT, ANSWER)


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000, '{"a": ' * 3000 + "1" + "}" * 3000, "9" * 5000])
def test_odd_arguments(arguments: str) -> None:
    answer = Answer("", "", (Call("f", arguments),))
    assert returned_key(ROOT, message(answer)) == answer_key(ROOT, answer)


def test_volatile_lines() -> None:
    lines = VolatileLines()
    line = "x-anthropic-billing-header: cch=1;"
    cases = [
        (f"{line}\nYou are", "You are"),
        (f"{line}\r\nYou are", "You are"),
        (f"You are\n{line}", "You are\n"),
        (f"a {line}\nb", f"a {line}\nb"),
        ("You are", "You are"),
    ]
    for before, after_it in cases:
        assert lines.strip([{"role": "system", "content": before}]) == [{"role": "system", "content": after_it}]
        assert lines.strip([{"role": "user", "content": before}]) == [{"role": "user", "content": before}]
    assert lines.strip([{"role": "system", "content": f"{line}\n"}, {"role": "user", "content": ""}]) == [
        {"role": "user", "content": ""}
    ]
    assert VolatileLines(()).strip([{"role": "system", "content": line}]) == [{"role": "system", "content": line}]
    with pytest.raises(ConfigError, match=r"--volatile-lines '\('"):
        VolatileLines(["("])


def test_a_conversation_of_nothing_but_volatile_lines_keeps_them() -> None:
    said = [{"role": "system", "content": "x-anthropic-billing-header: cch=1;"}]
    assert list(Histories(VolatileLines(), same).of(said, ROOT).flat) == flatten(said)


def outline(*parts: bytes, tools: bytes = b"", systems: int = 1) -> Outline:
    return Outline(tools, b"".join(part * 16 for part in parts), systems)


def test_where_a_prompt_leaves_the_last_one() -> None:
    last = LastPrompts()
    ids = b"".join(token.to_bytes(4, "little") for token in range(3000))
    assert last.follow("s", ids, outline(b"a", b"b")) is None
    assert last.follow("s", ids + ids, outline(b"a", b"b", b"c", b"d")) is None
    assert last.follow("s", ids, outline(b"a", b"b")) is None
    changed = ids[: 4 * 2000 + 2] + b"\xff" + ids[4 * 2000 + 3 :]
    assert last.follow("s", changed, outline(b"a", b"x")) == Departure(2000, 1, "messages")
    assert last.follow("s", ids, outline(b"z", b"y")) == Departure(2000, 0, "system")
    assert last.follow("s", changed, outline(b"z", b"y", tools=b"t")) == Departure(2000, None, "tools")
    assert last.follow("other", ids, outline(b"a")) is None
    small = LastPrompts(max_bytes=100)
    assert small.follow("s", ids, outline(b"a")) is None and small.follow("s", changed, outline(b"b")) is None


def test_fields_that_nobody_reads_count_as_well() -> None:
    """Otherwise a client could have any amount of memory held beside short contents."""
    histories = Histories(VolatileLines(()), same, max_bytes=1 << 20)
    for at in range(20):
        histories.of([{"role": "user", "content": f"{at}", "junk": {"x": ["y" * (100 << 10)]}}], ROOT)
    histories.check()
    held = sum(len(seen.messages[0]["junk"]["x"][0]) for seen, _ in histories._seen._entries.values())
    assert 0 < held <= 1 << 20


def test_what_alone_is_too_much_pushes_nothing_out() -> None:
    histories = Histories(VolatileLines(()), same, max_bytes=1 << 20)
    small = [{"role": "user", "content": "a"}]
    histories.of(small, ROOT)
    histories.of([{"role": "user", "content": "b" * (2 << 20)}], ROOT)
    histories.check()
    assert [seen.messages for seen, _ in histories._seen._entries.values()] == [small]


def test_what_templates_get_is_remembered_too() -> None:
    made: list[str] = []

    def mark(message: Message) -> Message:
        made.append(message["content"])
        return message if message["content"] == "a" else {**message, "content": f"{message['content']}!"}

    histories = Histories(VolatileLines(), mark)
    said = [{"role": "user", "content": "a"}]
    more = [*said, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    for asked in (said, more, deepcopy(more)):
        history = histories.of(asked, ROOT)
        assert [message["content"] for message in history.marked] == ["a", "b!", "c!"][: len(asked)]
        assert [message["content"] for message in history.flat] == ["a", "b", "c"][: len(asked)]
    assert made == ["a", "b", "c"]
    histories.check()


def test_who_only_looks_leaves_everything_as_it_was() -> None:
    histories = Histories(VolatileLines(), same)
    for at in range(3):
        histories.of([{"role": "user", "content": f"{at}"}], ROOT)
    before = [(key, entry) for key, entry in histories._seen._entries.items()]
    for content in ("0", "new"):
        anew = Histories(VolatileLines(), same).of([{"role": "user", "content": content}], ROOT)
        assert histories.of([{"role": "user", "content": content}], ROOT, remember=False) == anew
    assert [(key, entry) for key, entry in histories._seen._entries.items()] == before
