"""Tokenizers from GGUF metadata: SentencePiece by its definition, the real SmolLM2, contradictions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.spec.fields import Fields
from samovar.text.checkpoint import TextParts
from samovar.text.gguf_tokenizer import gguf_templates, load_gguf
from tests.text.vocabularies import PATH, TEXTS, byte_level, byte_level_values, sentencepiece, texts

_SPM = load_gguf(sentencepiece())


def _reference(text: str) -> list[int]:
    """SentencePiece BPE by its definition: join the best-scoring neighbours, leftmost first, until none is a piece."""
    metadata = sentencepiece()
    tokens, kinds = metadata.texts("tokenizer.ggml.tokens"), metadata.integers("tokenizer.ggml.token_type")
    scores = metadata.numbers("tokenizer.ggml.scores")
    assert tokens and kinds and scores
    rank = {token: (scores[i], i) for i, token in enumerate(tokens) if kinds[i] == 1}
    symbols = list(("▁" + text).replace(" ", "▁")) if text else []
    while True:
        joins = [(-rank[a + b][0], at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in rank]
        if not joins:
            break
        _, at = min(joins)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids: list[int] = []
    for symbol in symbols:
        ids += [rank[symbol][1]] if symbol in rank else [4 + byte for byte in symbol.encode()]
    return ids


@settings(deadline=None)
@given(st.one_of(texts, st.text(alphabet="abhtneigr ", max_size=40)))
def test_sentencepiece_ids_are_those_of_its_definition(text: str) -> None:
    if "<" not in text:
        assert _SPM.encode(text) == _reference(text)


def test_sentencepiece_joins_nothing_to_a_control_token() -> None:
    tokens = sentencepiece().texts("tokenizer.ggml.tokens")
    kinds = list(sentencepiece().integers("tokenizer.ggml.token_type") or [])
    control = tokens.index("he")
    kinds[control] = 3
    tokenizer = load_gguf(sentencepiece(**{"tokenizer.ggml.token_type": kinds}))
    assert control in tokenizer.encode("he")
    assert control not in tokenizer.encode("he", allow_special=False)


def test_a_whole_piece_ignores_merges_where_the_rule_says_so() -> None:
    tokens = byte_level().texts("tokenizer.ggml.tokens")
    kinds = list(byte_level().integers("tokenizer.ggml.token_type") or [])
    whole = {"tokenizer.ggml.tokens": [*tokens, "zqzq"], "tokenizer.ggml.token_type": [*kinds, 1]}
    assert load_gguf(byte_level("llama-bpe", **whole)).encode("zqzq") == [len(tokens)]
    assert len(load_gguf(byte_level("chatglm-bpe", **whole)).encode("zqzq")) > 1


def test_sentencepiece_without_a_prefix_space() -> None:
    tokenizer = load_gguf(sentencepiece(**{"tokenizer.ggml.add_space_prefix": False}))
    ids = tokenizer.encode("the in")
    assert tokenizer.decode(ids) == "the in"
    assert tokenizer.token_bytes(ids[0]) == b"the"
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"


def test_sentencepiece_byte_pieces_are_not_spelled_in_text() -> None:
    ids = _SPM.encode("<0x0A>")
    assert 4 + 10 not in ids
    assert _SPM.decode(ids) == "<0x0A>"
    assert _SPM.encode("\n")[-1] == 4 + 10


def test_sentencepiece_special_tokens() -> None:
    assert _SPM.encode("<s>the</s>")[0] == 1
    assert _SPM.decode(_SPM.encode("<s>", allow_special=False)) == "<s>"


@pytest.mark.model
def test_smollm2(smollm2: TextParts) -> None:
    tokenizer = smollm2.tokenizer
    assert tokenizer.vocab_size == 49152
    assert [tokenizer.special_tokens[role] for role in ("bos_token", "eos_token")] == ["<|im_start|>", "<|im_end|>"]
    assert tokenizer.eos_ids == (2, 0)
    assert len(tokenizer.special_ids) == 17
    assert tokenizer.encode("<|im_start|>user\n") == [1, 4093, 198]
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@pytest.mark.model
def test_smollm2_cuts_every_digit_off(smollm2: TextParts) -> None:
    """The published rule splits digits before spaces are looked at, so two spaces before a digit are one token."""
    pieces = [smollm2.tokenizer.token_text(i) for i in smollm2.tokenizer.encode("a  12\n\n3")]
    assert pieces == ["a", "  ", "1", "2", "\n\n", "3"]


def _metadata(**changes: object) -> Fields:
    values = byte_level_values()
    for key, value in changes.items():
        if value is None:
            values.pop(f"tokenizer.ggml.{key}")
        else:
            values[f"tokenizer.ggml.{key}"] = value
    return Fields(values, str(PATH))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "no tokenizer"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokens": "x"}, "tokenizer.ggml.tokens is 'x'; it must be a list"),
        ({"token_type": [1]}, "token_type has 1 entries"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["ab"]}, "merges holds 'ab'"),
        ({"merges": ["qq zz"]}, "merges do not fit"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000"),
        ({"eos_token_id": -1}, "eos_token_id is -1; it must be at least 0"),
        ({"eos_token_id": "x"}, "eos_token_id is 'x'; it must be an integer"),
        ({"model": "llama"}, "scores is missing"),
        ({"model": "llama", "scores": [0.0]}, "scores has 1 entries"),
    ],
)
def test_contradictions_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        load_gguf(_metadata(**changes))
    assert str(PATH) in error.value.message


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(UnsupportedFeature, match="'rwkv'"):
        load_gguf(_metadata(model="rwkv"))
    with pytest.raises(UnsupportedFeature, match="'brand-new'"):
        load_gguf(_metadata(pre="brand-new"))


def test_end_tokens_of_a_harmony_vocabulary() -> None:
    metadata = byte_level()
    tokens = metadata.texts("tokenizer.ggml.tokens")
    tokens[:3] = ["<|end|>", "<|return|>", "<|call|>"]
    assert load_gguf(byte_level(**{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.eos_token_id": 1})).eos_ids == (
        1,
        2,
    )
    tokens[1] = "<|other|>"
    assert load_gguf(byte_level(**{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.eos_token_id": 1})).eos_ids == (
        1,
        0,
        2,
    )


def test_templates_by_name() -> None:
    named = {
        "tokenizer.chat_template": "main",
        "tokenizer.chat_templates": ["tool_use", "rag"],
        "tokenizer.chat_template.tool_use": "tools",
    }
    assert gguf_templates(byte_level(**named)) == {"default": "main", "tool_use": "tools"}
    assert gguf_templates(byte_level()) == {}
