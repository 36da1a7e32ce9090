"""Typed reading of settings: each accessor takes its own type, and an error names place, field and value."""

from __future__ import annotations

import pytest

from samovar.base.errors import CheckpointError
from samovar.spec.fields import Fields

VALUES: dict[str, object] = {
    "s": "x",
    "i": 3,
    "b": True,
    "f": 0.5,
    "texts": ["a"],
    "ids": [1, 2],
    "scores": [0.5, 1],
    "flags": [True],
    "empty": [],
    "map": {"a": 1},
}
TAKES = {
    "text": {"s"},
    "integer": {"i"},
    "number": {"i", "f"},
    "texts": {"texts", "empty"},
    "integers": {"ids", "empty"},
    "numbers": {"ids", "scores", "empty"},
    "mapping": {"map"},
}


@pytest.mark.parametrize("accessor", TAKES)
def test_each_accessor_takes_its_type_only(accessor: str) -> None:
    read = getattr(Fields(VALUES, "some.gguf"), accessor)
    for name, value in VALUES.items():
        if name in TAKES[accessor]:
            assert read(name) == value
        else:
            with pytest.raises(CheckpointError, match=rf"some\.gguf: field {name} is .*; it must be"):
                read(name)


def test_what_is_absent_or_null() -> None:
    fields = Fields({"p.null": None}, "x", prefix="p.")
    for name in ("null", "absent"):
        assert fields.texts(name) == fields.integers(name) == fields.numbers(name) == []
        assert fields.mapping(name) == {} and not fields.has(name)
        assert (fields.text(name, "d"), fields.integer(name, 4), fields.flag(name, True)) == ("d", 4, True)
        for read in (fields.text, fields.integer, fields.number):
            with pytest.raises(CheckpointError, match=rf"field p\.{name} is missing"):
                read(name)
    assert "null" in fields and "absent" not in fields


def test_a_whole_vocabulary_does_not_end_up_in_the_message() -> None:
    with pytest.raises(CheckpointError) as caught:
        Fields({"tokens": ["a" * 50] * 100_000 + [1]}, "x").texts("tokens")
    assert len(caught.value.message) < 200
