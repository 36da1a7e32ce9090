"""Small vocabularies in the form a GGUF file gives them, and text to encode with them."""

from __future__ import annotations

from functools import cache
import json
from pathlib import Path

from hypothesis import strategies as st
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from samovar.spec.fields import Fields

PATH = Path("small.gguf")

TEXTS = (
    "",
    "Hello, world!",
    "def f(x: int) -> str:\n\tif x >= 10:\n        return f'{x!r:>4}'\n\n\n",
    "line\r\nline\r\n\r\n  indented\r\n",
    "    four  two one \t\ttabs   \n   \n",
    "12 345,678.90 ½ ٣٤٥ Ⅳ １２３",
    "a  1\n\n2\t3   4",
    "naïve café e\u0301 \u212b ﬁ ß",
    "日本語のテスト、漢字と 한국어",
    "👍 👩\u200d👩\u200d👧\u200d👦 🇩🇪",
    "I'll don't we've IT'S 'twas",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    '{"a": [1, 2, {"b": "\\u00e9"}], "c": null}',
    "\x00\x07\x1b[31mred\x1b[0m\ufffd",
    "a" * 300 + " " * 50 + "=" * 80,
)

texts = st.text(
    alphabet=st.one_of(
        st.sampled_from(" \n\r\t'019aBzé日あ👍\u0301\u200d½<|>_-=/"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=60,
)


@cache
def _trained() -> tokenizers.Tokenizer:
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    trained.train_from_iterator(TEXTS * 3, trainer)
    return trained


def byte_level_values(pre: str = "gpt-2") -> dict[str, object]:
    """A byte-level BPE of a few hundred tokens: three control tokens first, then a user-defined one."""
    trained = _trained()
    pieces = [piece for piece, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<toolé>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*added, *pieces],
        "tokenizer.ggml.token_type": [3, 3, 3, 4, *[1] * len(pieces)],
        "tokenizer.ggml.merges": _merges(trained),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def byte_level(pre: str = "gpt-2", **extra: object) -> Fields:
    return Fields({**byte_level_values(pre), **extra}, str(PATH))


def _merges(trained: tokenizers.Tokenizer) -> list[str]:
    """The merges of a trained model, which it shows only in its state."""
    return [" ".join(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]


SPM_WORDS = (
    "▁",
    "▁a",
    "▁the",
    "▁th",
    "▁t",
    "th",
    "he",
    "the",
    "in",
    "ing",
    "ng",
    "er",
    "re",
    "▁▁",
    "▁▁▁▁",
    "ab",
    "aba",
    "ba",
)


def sentencepiece(**extra: object) -> Fields:
    """<unk>, <s>, </s>, a user-defined token, 256 bytes, then pieces whose score falls with their position."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*SPM_WORDS, *letters]
    tokens = ["<unk>", "<s>", "</s>", "<tool>", *[f"<0x{byte:02X}>" for byte in range(256)], *pieces]
    values: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, 4, *[6] * 256, *[1] * len(pieces)],
        "tokenizer.ggml.scores": [0.0] * 260 + [-float(rank) for rank in range(len(pieces))],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return Fields({**values, **extra}, str(PATH))
