"""Parts of a text, encoded apart, give the ids of the whole: for every tokenizer that is cut at all."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from samovar.text.checkpoint import TextParts
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from samovar.text.turns.splitting import any_of, splitting_of
from tests.text.vocabularies import _trained

WORDS = ("<|a|>", "<|ab|>", "<|a", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool_call>", "\n\n\n", "é|", "<|")
fragments = st.one_of(
    st.sampled_from(
        [*WORDS, "<|im_start|", "im_end|>", " ", "\r\n", "\x00", "  ", "a b", "é", "e\u0301", "👍", "\u212a"]
    ),
    st.text(max_size=6),
)
texts = st.lists(fragments, max_size=14).map("".join)


def tokenizer(*tokens: AddedToken, **parts: object) -> Tokenizer:
    """A small byte-level vocabulary with these added tokens, and with other normalizers or pre-tokenizers."""
    backend = tokenizers.Tokenizer.from_str(_trained().to_str())
    for name, part in parts.items():
        setattr(backend, name, part)
    if backend.decoder is None:
        backend.decoder = decoders.ByteLevel()
    backend.add_tokens(list(tokens))
    return Tokenizer(backend, SpecialTokens())


def raw(word: str, **flags: bool) -> AddedToken:
    return AddedToken(word, normalized=False, **flags)


def metaspace(scheme: str, words: tuple[str, ...] = WORDS) -> Tokenizer:
    pieces = ["<unk>", "▁", "a", "b", "▁a", "im", "|", "<", ">", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: at for at, piece in enumerate(pieces)},
            merges=[("▁", "a")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    backend.add_tokens([raw(word) for word in words])
    return Tokenizer(backend, SpecialTokens())


ALL_RAW = [raw(word) for word in WORDS]
TOKENIZERS = {
    "plain": tokenizer(*ALL_RAW),
    "prefix space": tokenizer(*ALL_RAW, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "nfc": tokenizer(*ALL_RAW, normalizer=normalizers.NFC()),
    "prepend": tokenizer(*ALL_RAW, normalizer=normalizers.Prepend("_")),
    "normalized tokens too": tokenizer(
        raw("<s>"), raw("<|a|>"), AddedToken("<|ab|>", normalized=True), AddedToken("é|", normalized=True),
        normalizer=normalizers.NFC(),
    ),
    "lstrip": tokenizer(raw("<|a|>", lstrip=True), raw("<s>"), raw("<|ab|>")),
    "rstrip": tokenizer(raw("<|a|>", rstrip=True), raw("<s>"), raw("<|a")),
    "metaspace first": metaspace("first"),
    "metaspace always": metaspace("always"),
    "metaspace never": metaspace("never"),
}  # fmt: skip


def joined(tokenizer: Tokenizer, text: str) -> list[int]:
    parts = splitting_of(tokenizer).split(text)
    assert "".join(parts) == text
    return [token for part in parts for token in (tokenizer.encode(part) if part else [])]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_parts_give_the_ids_of_the_whole(name: str, text: str) -> None:
    assert joined(TOKENIZERS[name], text) == TOKENIZERS[name].encode(text)


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_small_vocabularies(small_bpe: Tokenizer, small_spm: Tokenizer, text: str) -> None:
    for one in (small_bpe, small_spm):
        assert joined(one, text) == one.encode(text)


@pytest.mark.model
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_smollm2(smollm2: TextParts, text: str) -> None:
    assert joined(smollm2.tokenizer, text) == smollm2.tokenizer.encode(text)


def test_where_texts_are_cut() -> None:
    split = splitting_of(TOKENIZERS["plain"]).split
    assert split("") == [""]
    assert split("ab") == ["ab"]
    assert split("<s>") == ["", "<s>"]
    assert split("x<s>y<|ab|>") == ["x", "<s>y", "<|ab|>"]
    assert split("<|ab|") == ["", "<|ab|"]  # "<|a" is a token, and longer than "<|"
    assert len(splitting_of(TOKENIZERS["rstrip"]).split("<s>x<|a|> <s>")) == 3


@pytest.mark.parametrize(
    "tokens",
    [
        [raw("<s>"), raw("word", single_word=True)],
        [raw("<s>", rstrip=True), raw(" x")],
        [AddedToken("<s>", normalized=True)],
        [raw("<s>", lstrip=True)],
        [],
    ],
    ids=["single words", "spaces taken from two sides", "normalized", "only greedy", "none"],
)
def test_nothing_is_cut_where_it_is_not_certain(tokens: list[AddedToken]) -> None:
    assert splitting_of(tokenizer(*tokens)).split("a <s> x <s> word") == ["a <s> x <s> word"]


@given(st.lists(st.text("ab.|", min_size=1, max_size=4), min_size=1, max_size=12), st.text("ab.|", max_size=30))
def test_any_of_finds_the_longest(words: list[str], text: str) -> None:
    longest_first = "|".join(re.escape(word) for word in sorted(set(words), key=len, reverse=True))
    assert re.findall(any_of(words), text) == re.findall(longest_first, text)


def test_many_tokens_stay_cheap() -> None:
    words = [f"<unused{number}>" for number in range(6000)]
    assert len(any_of(words)) < 40_000
    assert (
        json.dumps(re.findall(any_of(words), "<unused12><unused5999><unused6000>")) == '["<unused12>", "<unused5999>"]'
    )
