"""Ids of the real vocabulary against transformers' reading of the same file."""

from __future__ import annotations

from pathlib import Path
import random
from typing import Any
import unicodedata
import warnings

import pytest
from tokenizers import pre_tokenizers

from samovar.text.checkpoint import TextParts
from tests.text.vocabularies import TEXTS

pytestmark = [pytest.mark.model, pytest.mark.torch]


@pytest.fixture(scope="module")
def oracle(smollm2_gguf: Path) -> Any:
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    source = Path(__file__).resolve().parents[2] / "src" / "samovar" / "text"
    files = [path.read_text(encoding="utf-8") for path in sorted(source.glob("*.py"))]
    rng = random.Random(7)
    alphabet = "abcXYZ  \n\r\t'’.,;:(){}<>|=_-/éßñ日あ한👍\u0301\u200d\u3000½१0123456789"
    noise = ["".join(rng.choices(alphabet, k=rng.randint(1, 50))) for _ in range(1500)]
    return [*TEXTS, *files, *[text.replace("\n", "\r\n") for text in files[:2]], *noise]


def test_same_ids_where_there_are_no_digits(oracle: Any, smollm2: TextParts, corpus: list[str]) -> None:
    """transformers reads the GGUF name of the pre-tokenizer for no vocabulary of this kind and cuts as GPT-2 does,
    which differs from the published rule only around digits."""
    for text in corpus:
        plain = "".join(char for char in text if unicodedata.category(char)[0] != "N")
        assert smollm2.tokenizer.encode(plain) == oracle.encode(plain, add_special_tokens=False), plain


def test_same_ids_with_the_published_pre_tokenizer(oracle: Any, smollm2: TextParts, corpus: list[str]) -> None:
    """HuggingFaceTB/SmolLM2's tokenizer.json: Digits(individual_digits=true), then ByteLevel."""
    oracle.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in corpus:
        ids = smollm2.tokenizer.encode(text)
        assert ids == oracle.encode(text, add_special_tokens=False), text
        assert smollm2.tokenizer.decode(ids) == oracle.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def test_same_prompt(oracle: Any, smollm2: TextParts) -> None:
    assert smollm2.template is not None
    messages = [
        {"role": "user", "content": "hi <b>"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "1 + 1 = ?\n"},
    ]
    expected = oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert smollm2.template.render(messages) == expected
