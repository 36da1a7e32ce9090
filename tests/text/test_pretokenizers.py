"""Where each rule cuts: the places in which the published tokenizers differ."""

from __future__ import annotations

from hypothesis import given, settings
import pytest
from tokenizers import pre_tokenizers

from samovar.base.errors import UnsupportedFeature
from samovar.text.pretokenizers import PRE_TOKENIZERS, build_normalizer, build_pre_tokenizer, pre_tokenizer
from samovar.text.token_bytes import BYTE_ALPHABET
from tests.text.vocabularies import texts


def _cut(name: str, text: str) -> list[str]:
    pieces = build_pre_tokenizer(pre_tokenizer(name)).pre_tokenize_str(text)
    return [bytes(BYTE_ALPHABET[char] for char in piece).decode() for piece, _ in pieces]


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-2", "It's  1234 x_y", ["It", "'s", " ", " 1234", " x", "_", "y"]),
        ("gpt-2", "IT'S a\n\n b", ["IT", "'", "S", " a", "\n\n", " b"]),
        ("smollm", "x  12 y\n3", ["x", "  ", "1", "2", " y", "\n", "3"]),
        ("llama-bpe", "IT'S 12345 (ok)\n\n  x", ["IT", "'S", " ", "123", "45", " (", "ok", ")\n\n", " ", " x"]),
        ("llama-bpe", "é.e\r\n \n y", ["é", ".e", "\r\n \n", " y"]),
        ("qwen2", "we've 123", ["we", "'ve", " ", "1", "2", "3"]),
        ("qwen2", "e\u0301a", ["e", "\u0301a"]),
        ("qwen35", "e\u0301a 12", ["e\u0301a", " ", "1", "2"]),
        ("tekken", "camelCase/HTTPServer 12\n", ["camel", "Case", "/HTTPServer", " ", "1", "2", "\n"]),
        ("tekken", "don't //\n", ["don", "'t", " //\n"]),
        ("gpt-4o", "camelCase don't 1234", ["camel", "Case", " don't", " ", "123", "4"]),
        ("gpt-4o", "I'LL a/b\n", ["I'LL", " a", "/b", "\n"]),
        ("deepseek-v3", "x=foo.bar 12345", ["x", "=foo", ".bar", " ", "123", "45"]),
        ("deepseek-v3", "漢字abcカナ", ["漢字", "abc", "カナ"]),
        ("deepseek-llm", "Hi, x\n\n12 漢字", ["Hi", ",", " x", "\n", "\n", "12", " ", "漢字"]),
        ("deepseek-coder", "a_b 12\n", ["a", "_", "b", " ", "1", "2", "\n"]),
        ("default", "a+b 1234", ["a", "+", "b", " ", "123", "4"]),
    ],
)
def test_cuts(name: str, text: str, pieces: list[str]) -> None:
    assert _cut(name, text) == pieces


@settings(deadline=None)
@given(texts)
def test_no_rule_loses_text(text: str) -> None:
    for name, rule in PRE_TOKENIZERS.items():
        pieces = build_pre_tokenizer(rule).pre_tokenize_str(text)
        assert "".join(piece for piece, _ in pieces) == "".join(
            piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
        ), name


def test_qwen_composes_characters() -> None:
    normalizer = build_normalizer(pre_tokenizer("qwen2"))
    assert normalizer is not None
    assert normalizer.normalize_str("e\u0301") == "é"
    assert build_normalizer(pre_tokenizer("llama-bpe")) is None


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedFeature, match=r"'mystery'.*qwen2.*smollm"):
        pre_tokenizer("mystery")
