"""A bound from a text's length never exceeds the real number of tokens, and is given up where it might."""

from __future__ import annotations

import json
import sys
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.token_bound import NFC_SHRINKS
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from tests.text.vocabularies import byte_level, sentencepiece

SHRINKING = ("\u1fbe\u0308\u0301", "\u1112\u1161\u11ab", "\u212a", "e\u0301", "\u2126\u0301", "\x04", "\x7f")
pieces = st.one_of(
    st.sampled_from(
        [
            " ",
            "    ",
            "a" * 40,
            "=" * 30,
            "the",
            "▁",
            "\n\n",
            "<|im_end|>",
            "<toolé>",
            "<greedy>",
            "<unk>",
            "👍",
            *SHRINKING,
        ]
    ),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.lists(st.tuples(pieces, st.integers(1, 30)), max_size=8).map(
    lambda parts: "".join(piece * times for piece, times in parts)
)


def changed(change: object = None, **fields: object) -> Tokenizer:
    """The small byte-level tokenizer with parts of its tokenizer.json replaced."""
    state = json.loads(load_gguf(byte_level())._backend.to_str())
    state.update(fields)
    if callable(change):
        change(state)
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), SpecialTokens())


def without_bytes(state: dict[str, object]) -> None:
    """Characters of the alphabet that some vocabularies lack: no token spells them, so their bytes vanish."""
    model = state["model"]
    assert isinstance(model, dict)
    gone = {chr(0x100 + 4), chr(0x100 + 10), "ð", "Ł"}
    model["vocab"] = {piece: at for piece, at in model["vocab"].items() if not gone.intersection(piece)}
    model["merges"] = [pair for pair in model["merges"] if not any(gone.intersection(part) for part in pair)]


def with_greedy(state: dict[str, object]) -> None:
    added = state["added_tokens"]
    assert isinstance(added, list)
    added.append({**added[-1], "id": 9999, "content": "<greedy>", "lstrip": True, "rstrip": True})


def characters_only() -> Tokenizer:
    """No bytes to fall back on: all that is unknown becomes one token."""
    backend = tokenizers.Tokenizer(models.BPE(vocab={"<unk>": 0, "a": 1}, merges=[], unk_token="<unk>", fuse_unk=True))
    backend.decoder = decoders.Metaspace()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return Tokenizer(backend, SpecialTokens())


NFC = {"type": "NFC"}
BOUNDED = {
    "byte level": load_gguf(byte_level()),
    "composing": load_gguf(byte_level("qwen2")),
    "whole pieces": load_gguf(byte_level("llama-bpe")),
    "sentencepiece": load_gguf(sentencepiece()),
    "sentencepiece without a first space": load_gguf(sentencepiece(**{"tokenizer.ggml.add_space_prefix": False})),
    "bytes missing": changed(without_bytes),
    "bytes missing, composing": changed(without_bytes, normalizer=NFC),
    "greedy": changed(with_greedy),
}
SPLIT = json.loads(pre_tokenizers.Split(" ", "removed").__getstate__())
BYTES = json.loads(pre_tokenizers.ByteLevel(add_prefix_space=False).__getstate__())
UNBOUNDED = {
    "spaces removed": changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [SPLIT, BYTES]}),
    "white space removed": changed(
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, BYTES]}
    ),
    "stripped": changed(normalizer=json.loads(normalizers.Strip().__getstate__())),
    "accents dropped": changed(normalizer={"type": "Sequence", "normalizers": [NFC, {"type": "StripAccents"}]}),
    "replaced by less": changed(normalizer=json.loads(normalizers.Replace("aa", "b").__getstate__())),
    "replaced by pattern": changed(normalizer=json.loads(normalizers.Replace(Regex(" +"), " ").__getstate__())),
    "unknown characters fused": characters_only(),
}


@pytest.mark.parametrize("name", [*BOUNDED, *UNBOUNDED])
def test_never_more_than_there_are(name: str) -> None:
    tokenizer = {**BOUNDED, **UNBOUNDED}[name]

    @settings(max_examples=150, deadline=None)
    @given(text=texts)
    def check(text: str) -> None:
        assert tokenizer.at_least(text) <= len(tokenizer.encode(text))

    check()
    for piece in (" ", "a", *SHRINKING, "日", "🇩🇪", "<|im_end|>"):
        assert tokenizer.at_least(piece * 2000) <= len(tokenizer.encode(piece * 2000))


@pytest.mark.parametrize("name", BOUNDED)
def test_long_text_has_a_bound(name: str) -> None:
    """Within the length of the longest token, a few bytes here."""
    tokenizer = BOUNDED[name]
    longest = max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
    for text in ("hello " * 5000, "b" * 30_000):
        assert tokenizer.at_least(text) >= 30_000 // (3 * longest) > 10


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_may_lose_bytes_has_none(name: str) -> None:
    assert UNBOUNDED[name].at_least("hello " * 5000) == 0


def test_a_token_that_takes_the_space_around_it() -> None:
    greedy = BOUNDED["greedy"]
    text = " " * 100_000 + "<greedy>"
    assert len(greedy.encode(text)) == 1 and greedy.at_least(text) == 0
    backend = greedy._backend
    assert isinstance(backend.get_added_tokens_decoder()[greedy.encode("<greedy>")[0]], AddedToken)


def test_bytes_that_no_token_spells_do_not_count() -> None:
    lacking = BOUNDED["bytes missing"]
    assert lacking.encode("\x04" * 1000) == [] and lacking.at_least("\x04" * 1000) == 0
    assert lacking.at_least("\x04" * 1000 + "b" * 1000) == lacking.at_least("b" * 1000) > 0


def test_lone_surrogates_do_no_harm() -> None:
    assert 0 < BOUNDED["byte level"].at_least("\ud800" * 3000) <= len(BOUNDED["byte level"].encode("\ud800" * 3000))


def test_how_much_composing_can_shorten() -> None:
    """Over all of Unicode: each character against the longest text that decomposes to the same characters."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    decomposed = {char: unicodedata.normalize("NFD", char) for char in characters}
    longest: dict[str, int] = {}
    for char, parts in decomposed.items():
        if len(parts) == 1:
            longest[parts] = max(longest.get(parts, 0), len(char.encode()))
    worst = 0.0
    for char, parts in decomposed.items():
        before = sum(longest[part] for part in parts)
        assert len(char.encode()) <= before
        worst = max(worst, before / len(char.encode()))
    assert 3 < worst < NFC_SHRINKS
