"""Encoding, decoding by bytes and special tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import assume, given, settings
import pytest

from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.tokenizer import Tokenizer
from tests.text.vocabularies import TEXTS, byte_level, sentencepiece, texts

_BPE, _SPM = load_gguf(byte_level()), load_gguf(sentencepiece())


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives(small_bpe: Tokenizer, small_spm: Tokenizer, text: str) -> None:
    for tokenizer in (small_bpe, small_spm):
        ids = tokenizer.encode(text, allow_special=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@settings(deadline=None)
@given(text=texts)
def test_any_text_survives(text: str) -> None:
    assume("\u2581" not in text)  # how SentencePiece writes a blank
    for tokenizer in (_BPE, _SPM):
        assert tokenizer.decode(tokenizer.encode(text, allow_special=False), skip_special_tokens=False) == text


@settings(deadline=None)
@given(text=texts)
def test_decoding_agrees_with_the_library(text: str) -> None:
    for tokenizer in (_BPE, _SPM):
        ids = [i for i in tokenizer.encode(text) if "é" not in tokenizer.token_text(i)]
        library = tokenizer._backend
        assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)
        assert tokenizer.decode(ids, skip_special_tokens=False) == library.decode(ids, skip_special_tokens=False)


def test_special_text_is_special_only_when_allowed(small_bpe: Tokenizer) -> None:
    text = "<|im_start|>hi<|im_end|>"
    allowed = small_bpe.encode(text)
    assert allowed[0] == 1 and allowed[-1] == 2
    spelled = small_bpe.encode(text, allow_special=False)
    assert not small_bpe.special_ids.intersection(spelled)
    assert small_bpe.decode(spelled) == text
    assert small_bpe.decode(allowed) == "hi"
    assert small_bpe.decode(allowed, skip_special_tokens=False) == text


def test_a_spelled_encoding_in_one_thread_leaves_the_other_alone(small_bpe: Tokenizer) -> None:
    with ThreadPoolExecutor(4) as pool:
        flags = [bool(n % 2) for n in range(200)]
        results = list(pool.map(lambda flag: small_bpe.encode("<|im_end|>", allow_special=flag), flags))
    assert [ids == [2] for ids in results] == flags


def test_user_defined_tokens_are_whole_and_shown(small_bpe: Tokenizer) -> None:
    assert small_bpe.encode("<toolé>") == [3]
    assert small_bpe.encode("<toolé>", allow_special=False) == [3]
    assert 3 not in small_bpe.special_ids
    assert small_bpe.token_bytes(3) == "<toolé>".encode()
    assert small_bpe.decode([3]) == "<toolé>"


def test_special_tokens_are_added_on_demand(small_bpe: Tokenizer, small_spm: Tokenizer) -> None:
    assert small_spm.encode("a", add_special_tokens=True) == [1, *small_spm.encode("a")]
    assert small_bpe.encode("a", add_special_tokens=True) == small_bpe.encode("a")
    both = load_gguf(byte_level(**{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}))
    assert both.encode("a", add_special_tokens=True) == [1, *both.encode("a"), 2]


def test_roles(small_bpe: Tokenizer, small_spm: Tokenizer) -> None:
    assert small_bpe.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert small_bpe.eos_ids == (2, 0)
    assert small_bpe.special_ids == {0, 1, 2}
    assert (small_spm.special_tokens["eos_token"], small_spm.eos_ids) == ("</s>", (2,))


def test_ids_without_a_token_have_no_text(small_bpe: Tokenizer) -> None:
    for token_id in (small_bpe.vocab_size, 10**6, -1, 2**40):
        assert small_bpe.token_bytes(token_id) == b""
    assert small_bpe.decode([10**6, -1]) == ""


def test_every_token_s_bytes_make_up_the_text(small_bpe: Tokenizer) -> None:
    text = "a 🦜 flies"
    ids = small_bpe.encode(text)
    assert b"".join(small_bpe.token_bytes(i) for i in ids) == text.encode()
    assert "\ufffd" in "".join(small_bpe.token_text(i) for i in ids)


def test_a_continuation_keeps_its_space(small_spm: Tokenizer) -> None:
    ids = small_spm.encode("the")
    assert small_spm.decode(ids) == "the"
    assert small_spm.decode(ids, at_start=False) == " the"
    assert small_spm.decode([1, *ids]) == "the"
    assert small_spm.decode([1, *ids], skip_special_tokens=False) == "<s> the"
