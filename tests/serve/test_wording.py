"""Errors speak of JSON and of limits, in whole sentences: nothing of Python or of the library that found them."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import InvalidField
from samovar.base.shown import SHOWN_CHARACTERS, shown
from samovar.serve.bodies import Body, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from samovar.serve.validation import validate

BODIES: dict[type[Body], dict[str, Any]] = {
    ChatBody: {"messages": []},
    CompletionBody: {"prompt": "a"},
    TokenizeBody: {"prompt": "a"},
    DetokenizeBody: {"tokens": []},
}
FIELDS = [(body, name) for body in BODIES for name in body.model_fields]
WRONG: list[Any] = [
    True, 5, -5, 0, 1.5, 1e300, -1e300, 2**31, 2**63, -(2**70), 10**400, "", "x", "x y", "ü", "x" * 300, "x" * 2000,
    [], [None], [True, "x"], [1.5], [-1], [2**40], list(range(2000)), [[None]], {}, {"a": None}, {"a": "b"},
    {"1": 1000}, {"type": None}, {"include_usage": "x"}, {str(at): 1 for at in range(2000)},
]  # fmt: skip
SENTENCE = r"([^:]+): (?:must be .+; got .+|must have at (?:least|most) \d+ \w+; got \d+|this field is required)\."
FOREIGN = re.compile(
    r"dictionary|instance|valid |Input|pattern|something|[Ll]ist\b|None|True|False|StreamOptions|ResponseFormat"
    r"|Body|utf-8-sig|should|\bint\b|\bstr\b|greater|\binf|\.0 "
)


@pytest.mark.parametrize(("body", "name"), FIELDS)
def test_every_field_in_plain_words(body: type[Body], name: str) -> None:
    found = 0
    for value in WRONG:
        try:
            validate(body, {**BODIES[body], name: value})
        except InvalidField as error:
            found += 1
            told = re.fullmatch(SENTENCE, error.message)
            assert told and told[1] == error.param and error.param.startswith(name), error.message
            assert not FOREIGN.search(error.message), error.message
            assert len(error.message) < 300 and error.message.isascii()
    annotation = str(body.model_fields[name].annotation)
    assert found or annotation == "typing.Any"


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=100)),
    lambda inner: st.one_of(st.lists(inner, max_size=70), st.dictionaries(st.text(max_size=80), inner, max_size=70)),
    max_leaves=80,
)


@given(value=json_values)
def test_shown_values_are_short_and_printable(value: Any) -> None:
    text = shown(value)
    assert text.isascii() and text.isprintable() and len(text) <= 2 * SHOWN_CHARACTERS + 3


@given(value=st.lists(st.lists(st.one_of(st.none(), st.booleans(), st.integers(0, 9)), max_size=3), max_size=4))
def test_shown_values_are_json(value: Any) -> None:
    assert shown(value) == json.dumps(value) and shown({"a": value}) == f"{{'a': {json.dumps(value)}}}"


def test_shown_values() -> None:
    assert shown({"a": [None, True, {"b": "x\n"}]}) == "{'a': [null, true, {'b': 'x\\n'}]}"
    assert shown([[], {}]) == "[[], {}]"
    assert shown([[[[[[1]]]]]]) == "[[[[an array of 1]]]]"
    assert shown([0] * 61) == "an array of 61" and shown({str(at): 1 for at in range(61)}) == "an object of 61"
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    assert len(shown(deep)) < 100
