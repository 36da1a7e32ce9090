"""Tokenizers that several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from samovar.text.checkpoint import TextParts, load_text
from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level, sentencepiece


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path) -> TextParts:
    return load_text(smollm2_gguf)


@pytest.fixture(scope="session")
def small_bpe() -> Tokenizer:
    return load_gguf(byte_level())


@pytest.fixture(scope="session")
def small_spm() -> Tokenizer:
    return load_gguf(sentencepiece())
