"""Bodies read from where an earlier one ends are read as without that."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import RequestError
from samovar.serve.body_memory import BodyMemory
from samovar.serve.json_input import parse_object

texts = st.text(st.sampled_from('ab "\\]}[{,:é\n'), max_size=12)
elements = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": texts}),
    st.fixed_dictionaries({"messages": st.lists(texts, max_size=2)}),
    st.sampled_from([1, True, None, "x", [], {}, {"a": [1.5, "]"]}]),
)
others = st.dictionaries(
    st.sampled_from(["model", "tools", "input", "x"]), st.one_of(texts, st.lists(elements, max_size=2))
)


def written(draw: st.DrawFn, key: str, listed: list[Any], before: dict[str, Any], after: dict[str, Any]) -> bytes:
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
    ascii = draw(st.booleans())
    value = {**before, key: listed, **{name: what for name, what in after.items() if name not in before}}
    return json.dumps(value, separators=(comma, colon), ensure_ascii=ascii).encode()


def either(parse: Any, *arguments: Any) -> object:
    try:
        return json.dumps(parse(*arguments))
    except RequestError as error:
        return error.message, error.param


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_as_without(data: st.DataObject) -> None:
    memory = BodyMemory(max_bytes=3000, min_bytes=0)
    key = data.draw(st.sampled_from(["messages", "input", "other"]))
    before, after = data.draw(others), data.draw(others)
    before.pop(key, None)
    listed = data.draw(st.lists(elements, max_size=5))
    raw = b""
    for _ in range(data.draw(st.integers(2, 6))):
        listed = listed + data.draw(st.lists(elements, max_size=3))
        if data.draw(st.integers(0, 3)) == 0:
            after = data.draw(others)
        if data.draw(st.integers(0, 4)) == 0 and listed:
            listed = listed[: data.draw(st.integers(0, len(listed)))]
        raw = written(data.draw, key, listed, before, {k: v for k, v in after.items() if k != key})
        if data.draw(st.integers(0, 5)) == 0:
            cut = data.draw(st.integers(0, len(raw)))
            raw = (
                raw[:cut]
                + data.draw(st.sampled_from([b"", b"]", b'"', b',"messages":[9]', b"\\", b"\xff"]))
                + raw[cut:]
            )
        if data.draw(st.integers(0, 5)) == 0 and raw.endswith(b"}"):
            raw = raw[:-1] + b',"%b":["later"]}' % key.encode()
        tenant = data.draw(st.sampled_from(["a", "a", "b"]))
        assert either(memory.parse, raw, tenant) == either(parse_object, raw)
        memory.check()


def bodies(count: int) -> list[bytes]:
    messages = [{"role": "user", "content": f"{number} {'x' * 100}"} for number in range(2 * count + 4)]
    return [json.dumps({"model": "m", "messages": messages[: 2 * at + 4]}).encode() for at in range(count)]


def test_the_beginning_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(raw: bytes) -> dict[str, Any]:
        read.append(len(raw))
        return parse_object(raw)

    monkeypatch.setattr("samovar.serve.body_memory.parse_object", counting)
    memory = BodyMemory(min_bytes=0)
    values = [memory.parse(raw, "a") for raw in bodies(20)]
    assert max(read[1:]) < 1000 < len(bodies(20)[-1])
    assert values[-1] == json.loads(bodies(20)[-1])
    assert values[-1]["messages"][0] is values[0]["messages"][0]
    # Not so for another tenant, nor for a conversation that differs early.
    before = len(read)
    memory.parse(bodies(20)[-1], "b")
    memory.parse(bodies(20)[-1].replace(b'"m"', b'"n"'), "a")
    assert read[before:] == [len(bodies(20)[-1])] * 2


def test_it_stays_small() -> None:
    memory = BodyMemory(max_bytes=5000, min_bytes=0)
    for number in range(50):
        for raw in bodies(6):
            memory.parse(raw.replace(b'"m"', b'"m%d"' % number), "a")
            memory.check()
