from __future__ import annotations

import pytest

from samovar.text.tokenizer import Tokenizer
from tests.text.grammar.matching import Matching


@pytest.fixture(scope="session")
def small(small_bpe: Tokenizer) -> Matching:
    return Matching(small_bpe)
