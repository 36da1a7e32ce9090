"""Lone surrogates: found, replaced, and harmless to encoding."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.text.surrogates import find_surrogate, replace_surrogates
from samovar.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("text", "at", "mended"),
    [
        ("", None, ""),
        ("plain é 👍", None, "plain é 👍"),
        ("ab\ud83dc", 2, "ab\ufffdc"),
        ("\ude00", 0, "\ufffd"),
        ("x\ud83d\ude00y", None, "x😀y"),
        ("\ud83d\ud83d\ude00", 0, "\ufffd😀"),
        ("\ude00\ud83d", 0, "\ufffd\ufffd"),
        ("👍\ud83d", 1, "👍\ufffd"),
    ],
)
def test_lone_surrogates_are_found_and_replaced(text: str, at: int | None, mended: str) -> None:
    assert find_surrogate(text) == at
    assert replace_surrogates(text) == mended


@settings(deadline=None)
@given(st.text(alphabet=st.characters(categories=["L", "Cs", "So"]), max_size=20))
def test_any_text_becomes_utf8(text: str) -> None:
    mended = replace_surrogates(text)
    mended.encode("utf-8")
    assert find_surrogate(mended) is None
    assert ("\ufffd" in mended) == (find_surrogate(text) is not None or "\ufffd" in text)


def test_encode_takes_lone_surrogates(small_bpe: Tokenizer) -> None:
    assert small_bpe.decode(small_bpe.encode("a\ud800b")) == "a\ufffdb"
    assert small_bpe.decode(small_bpe.encode("a\ud800b", allow_special=False)) == "a\ufffdb"
