"""Text that goes out and comes back."""

from __future__ import annotations

from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.serve.responses.sealed import seal, unseal


@given(st.text(st.characters(codec="utf-8")))
def test_comes_back(text: str) -> None:
    assert unseal("summary", seal("summary", text)) == text
    assert unseal("reasoning", seal("summary", text)) is None


@pytest.mark.parametrize(
    "sealed", [None, 7, "", "gAAAA", "samovar1:summary:%%", "samovar1:summary:" + b64encode(b"\xed\xa0\x80").decode()]
)
def test_anything_else_is_nothing(sealed: object) -> None:
    assert unseal("summary", sealed) is None
