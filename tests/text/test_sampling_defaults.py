"""A checkpoint's recommended sampling: what is taken, and every value that no request could have."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import CheckpointError
from samovar.text.sampling_defaults import GENERATION_CONFIG, sampling_defaults


def write(folder: Path, content: object) -> Path:
    (folder / GENERATION_CONFIG).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({}, {}),
        ({"eos_token_id": 3, "temperature": None}, {}),
        ({"temperature": 0.6, "top_p": 0.95, "top_k": 20}, {"temperature": 0.6, "top_p": 0.95, "top_k": 20}),
        ({"temperature": 1, "min_p": 0}, {"temperature": 1.0, "min_p": 0.0}),
        ({"top_k": 50.0}, {"top_k": 50}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"do_sample": True, "top_p": 0.5}, {"top_p": 0.5}),
        (
            {"do_sample": False, "top_p": 0.5, "repetition_penalty": 1.1},
            {"temperature": 0.0, "repetition_penalty": 1.1},
        ),
    ],
)
def test_what_is_taken(declared: object, expected: dict[str, object], tmp_path: Path) -> None:
    found = sampling_defaults(write(tmp_path, declared))
    assert found == expected
    assert all(type(value) is type(expected[name]) for name, value in found.items())


def test_without_the_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert sampling_defaults(tmp_path) == sampling_defaults(tmp_path / "model.gguf") == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "0.6"),
        ("temperature", True),
        ("temperature", 10**400),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", 50.5),
        ("top_k", -2),
        ("top_k", 1e300),
        ("top_k", float("inf")),
        ("min_p", -0.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-320),
        ("repetition_penalty", [1.1]),
        ("do_sample", "no"),
    ],
)
def test_nonsense_is_named(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"generation_config\.json: field {name} is .*; it must be"):
        sampling_defaults(write(tmp_path, {name: value}))


@pytest.mark.parametrize("text", ["[]", "3", "{", "null", "\ud800"])
def test_a_file_that_is_no_object(text: str, tmp_path: Path) -> None:
    (tmp_path / GENERATION_CONFIG).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        sampling_defaults(tmp_path)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)), st.lists, max_leaves=3
)
FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "do_sample")


@given(declared=st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_whatever_stands_there_is_valid_or_refused(
    declared: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        found = sampling_defaults(write(tmp_path_factory.getbasetemp(), declared))
    except CheckpointError:
        return
    assert 0 <= found.get("temperature", 1.0) <= 2 and 0 < found.get("top_p", 1.0) <= 1
    assert 0 <= found.get("min_p", 0.0) <= 1 and 0.01 <= found.get("repetition_penalty", 1.0) <= 100
    assert type(found.get("top_k", 0)) is int and found.get("top_k", 0) >= 0
