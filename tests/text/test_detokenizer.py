"""Pieces of text against the decoding of the whole, however the ids are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest

from samovar.text.checkpoint import TextParts
from samovar.text.detokenizer import IncrementalDetokenizer
from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level, sentencepiece, texts

_BPE, _SPM = load_gguf(byte_level()), load_gguf(sentencepiece())


def _pieces(tokenizer: Tokenizer, ids: list[int], cuts: list[int], **options: Any) -> str:
    detokenizer = IncrementalDetokenizer(tokenizer, **options)
    at = sorted({0, len(ids), *(cut % (len(ids) + 1) for cut in cuts)})
    out = "".join(detokenizer.push(ids[a:b]) for a, b in pairwise(at))
    return out + detokenizer.flush()


cut_lists = st.lists(st.integers(0, 200), max_size=20)


@settings(deadline=None)
@given(st.data(), cut_lists, st.booleans(), st.booleans())
def test_pieces_make_up_the_decoding_of_any_ids(data: st.DataObject, cuts: list[int], skip: bool, start: bool) -> None:
    """Random ids, so mostly broken UTF-8."""
    for tokenizer in (_BPE, _SPM):
        ids = data.draw(st.lists(st.integers(-1, tokenizer.vocab_size), max_size=30))
        whole = tokenizer.decode(ids, skip_special_tokens=skip, at_start=start)
        assert _pieces(tokenizer, ids, cuts, skipped=None if skip else (), at_start=start) == whole


@settings(deadline=None)
@given(texts, cut_lists)
def test_pieces_of_a_text_make_up_the_text(text: str, cuts: list[int]) -> None:
    for tokenizer in (_BPE, _SPM):
        ids = tokenizer.encode(text, allow_special=False)
        assert _pieces(tokenizer, ids, cuts, skipped=()) == text


@pytest.mark.model
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, noise=st.lists(st.integers(0, 49151), max_size=8), cuts=cut_lists, skip=st.booleans())
def test_pieces_on_the_real_vocabulary(
    smollm2: TextParts, text: str, noise: list[int], cuts: list[int], skip: bool
) -> None:
    tokenizer = smollm2.tokenizer
    ids = [*tokenizer.encode(text), *noise, *tokenizer.encode(text[::-1])]
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    assert _pieces(tokenizer, ids, cuts, skipped=None if skip else ()) == whole
    assert whole == tokenizer._backend.decode(ids, skip_special_tokens=skip)


def test_half_a_character_waits() -> None:
    bytes_of_emoji = [_BPE._backend.token_to_id(piece) for piece in ("ð", "Ł", "¦", "ľ")]
    ids = [i for i in bytes_of_emoji if i is not None]
    detokenizer = IncrementalDetokenizer(_BPE)
    assert [detokenizer.push([i]) for i in ids[:3]] == ["", "", ""]
    assert detokenizer.push(ids[3:]) == "🦜"
    assert detokenizer.push(ids[:2]) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_special_tokens_show_on_request() -> None:
    ids = _BPE.encode("a<|im_end|>b")
    assert IncrementalDetokenizer(_BPE).push(ids) == "ab"
    assert IncrementalDetokenizer(_BPE, skipped=()).push(ids) == "a<|im_end|>b"


def test_the_leading_space_goes_once_and_only_at_the_start() -> None:
    ids = _SPM.encode("the  ing")
    detokenizer = IncrementalDetokenizer(_SPM)
    assert [detokenizer.push([1]), detokenizer.push(ids), detokenizer.push(ids)] == ["", "the  ing", " the  ing"]
    assert IncrementalDetokenizer(_SPM, at_start=False).push(ids) == " the  ing"
