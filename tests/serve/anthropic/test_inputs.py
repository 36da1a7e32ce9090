"""Inputs of tools: always a JSON object, never half a value, nothing lost."""

from __future__ import annotations

import json
import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.serve.anthropic.inputs import UNPARSED, InputText, arguments_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(min_size=1).filter(lambda key: key != UNPARSED), VALUES, max_size=4)
JSON_LIKE = st.text(alphabet='{}[],:"\\ua01 \nntruefals-.eE+é\xa0', max_size=40)


def passed(pieces: list[str]) -> str:
    text = InputText()
    return "".join([*(text.push(piece) for piece in pieces), text.finish()])


@settings(deadline=None)
@given(OBJECTS, st.sampled_from([None, 2]), st.booleans())
def test_valid_arguments_stay_as_written(given: dict, indent: int | None, ascii: bool) -> None:
    text = json.dumps(given, indent=indent, ensure_ascii=ascii)
    assert json.loads(passed([text])) == given
    if given:
        assert passed([text]) == text
    assert json.loads(arguments_of(json.loads(passed([text])))) == given


@settings(deadline=None)
@given(OBJECTS, st.data())
def test_cut_off(given: dict, data: st.DataObject) -> None:
    """What is there is whole, what is not whole stands apart, and the text is known again."""
    text = json.dumps(given, ensure_ascii=False)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    found = json.loads(passed([cut]))
    rest = found.pop(UNPARSED, "")
    assert found.items() <= given.items()
    assert bool(rest) == bool(cut)
    assert arguments_of({**found, **({UNPARSED: rest} if rest else {})}) == (cut or "{}")


@settings(deadline=None)
@given(JSON_LIKE | st.text(max_size=30), st.integers(0, 2**32))
def test_anything_is_an_object_however_it_is_cut(text: str, seed: int) -> None:
    whole = passed([text])
    assert isinstance(json.loads(whole), dict)
    whole.encode()
    assert passed(list(text)) == whole
    cuts = sorted(random.Random(seed).choices(range(len(text) + 1), k=3))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert passed(pieces) == whole


@pytest.mark.parametrize(
    "text",
    [
        "[1]", '"x"', "5", "garbage", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"a": 1]', '{"a" 1}', "{,}",
        '{"a": [1}, "b": 2}', "\xa0{}", '{"a": ' + "[" * 150 + "]" * 150 + "}", "{1: 2}",
    ],
)  # fmt: skip
def test_no_object(text: str) -> None:
    assert json.loads(passed([text])) == {UNPARSED: text}
    assert arguments_of({UNPARSED: text}) == text


def test_after_a_good_member() -> None:
    assert json.loads(passed(['{"a": 1} and more'])) == {"a": 1, UNPARSED: "} and more"}
    assert json.loads(passed(['{"a": 1, "b": oops}'])) == {"a": 1, UNPARSED: ', "b": oops}'}
    assert arguments_of({"a": 1, UNPARSED: ', "b": oops}'}) == '{"a": 1, "b": oops}'


@pytest.mark.parametrize("text", ["", " ", "{}", " {\n} ", "null"])
def test_nothing(text: str) -> None:
    assert passed([text]) == "{}"


def test_members_flow_as_they_end() -> None:
    text = InputText()
    assert [text.push(piece) for piece in ('{"a": ', '"x"', ', "b"', ": [1,", "2]}")] == [
        "", "", '{"a": "x"', "", ', "b": [1,2]',
    ]  # fmt: skip
    assert text.finish() == "}"


def test_order_and_spelling_of_a_history() -> None:
    assert arguments_of({"path": "ä", "content": "b"}) == '{"path": "ä", "content": "b"}'


def test_long_inputs_take_linear_time() -> None:
    content = json.dumps({"content": 'line "quoted"\n' * 60_000})
    begin_s = time.process_time()
    text = InputText()
    for at in range(0, len(content), 4):
        text.push(content[at : at + 4])
    text.finish()
    assert time.process_time() - begin_s < 8
