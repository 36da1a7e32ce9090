"""Bodies are read fast where nothing is wrong with them, with the same results and refusals as slowly."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import RequestError
from samovar.serve.json_input import MAX_DEPTH, _parse_slowly, parse_object

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=20,
)
FAULTY = [
    b"", b"[]", b"3", b'"a"', b"{", b'{"a": 1}x', b'{"a": 01}', b'{"a": NaN}', b'{"a": 1e999}', b'{"a": [-1e999]}',
    b'{"a": "\\ud800"}', b'{"\\udc00": 1}', b'{"a": ["\\ud83d\\ud83d\\ude00"]}', b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}',
    b'{"a": "\n"}', b'{"a": ' + b"1" * 5000 + b"}", b'{"a": "\\x"}', b"\xff{}",
]  # fmt: skip


def either(parse: Any, raw: bytes) -> object:
    try:
        return parse(raw)
    except RequestError as error:
        return error.message, error.param


@given(st.dictionaries(st.text(), values, max_size=5), st.booleans(), st.sampled_from([b"", b"\xef\xbb\xbf", b" \r\n"]))
def test_as_slowly(value: dict[str, Any], ascii: bool, before: bytes) -> None:
    raw = before + json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    fast, slow = either(parse_object, raw), either(_parse_slowly, raw)
    assert fast == slow and repr(fast) == repr(slow)


@pytest.mark.parametrize("raw", FAULTY)
def test_the_same_is_refused_in_the_same_words(raw: bytes) -> None:
    refusal = either(parse_object, raw)
    assert isinstance(refusal, tuple) and refusal == either(_parse_slowly, raw)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"

    def nested(levels: int) -> bytes:
        """`levels` of them, the body itself included."""
        return b'{"x":' + opening * (levels - 1) + (b"" if opening == b"[" else b"1") + closing * (levels - 1) + b"}"

    for parse in (parse_object, _parse_slowly):
        assert isinstance(parse(nested(MAX_DEPTH)), dict)
        for levels in (MAX_DEPTH + 1, 900, 5000):
            with pytest.raises(RequestError, match="nested too deeply"):
                parse(nested(levels))


def test_a_body_of_nothing_but_brackets_is_refused_at_once() -> None:
    raw = b'{"messages": [], "x": [' + b"[]," * 3_000_000 + b"[]]}"
    began_s = time.monotonic()
    with pytest.raises(RequestError, match="1,000,000 opening brackets"):
        parse_object(raw)
    assert time.monotonic() - began_s < 1


PATHS = {
    b'{"a": [{"b": ["x", "\\ud800"]}]}': "a[0].b[1]",
    b'{"a": [[], [{"\\ud800": 1}]]}': "a[1][0].\\ud800",
    b'\xef\xbb\xbf{"a": [1, {"b": {"c": -1e999}}]}': "a[1].b.c",
    b'{"\\udc00": {"a": 1}}': "\\udc00",
}


@pytest.mark.parametrize("raw", PATHS)
def test_where_a_fault_is(raw: bytes) -> None:
    with pytest.raises(RequestError) as error:
        parse_object(raw)
    assert error.value.param == PATHS[raw]


@pytest.mark.parametrize("begin", [b'\xef\xbb\xbf{"', b'{"\\ud83d\\ude00'], ids=["mark", "surrogates"])
def test_a_long_key_over_many_containers_costs_no_paths(begin: bytes) -> None:
    """One path for each of these would be 200 MB."""
    raw = begin + b"k" * 10_000 + b'": [' + b"[]," * 20_000 + b"[]]}"
    parse_object(raw)
    tracemalloc.start()
    parse_object(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
