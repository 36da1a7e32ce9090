"""Marked text to ids: what has a mark is spelt out, what has none is a control token.

The tokenizer finds control tokens by their letters alone. So those that count are given names that nobody can know, and
a twin of the tokenizer knows them by these; then the marks go, and what is left of control tokens is letters.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
import re
import secrets

from samovar.text.marks import unmarked
from samovar.text.respelt import Encode
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.splitting import any_of


class MarkedEncoder:
    """Safe to use from several threads. The twin is made when a marked text first comes."""

    def __init__(self, tokenizer: Tokenizer, ids: Collection[int]) -> None:
        """`ids`: of the added tokens whose letters may be marked."""
        self._tokenizer = tokenizer
        nonce = f"q{secrets.token_hex(12)}"
        own = {id: tokenizer.added_tokens[id].content for id in ids}
        # Tokens beside it may look at its first and last character.
        self._spellings = {id: f"{text[0]}{nonce}{id:08x}{text[-1]}" for id, text in own.items()}
        self._names = {text: self._spellings[id] for id, text in own.items()}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, as of one without marks but that marked letters are never a control token."""
        named = self._found.sub(lambda found: self._names.get(found[0], found[0]), text)
        return self._twin(unmarked(named))

    @cached_property
    def _twin(self) -> Encode:
        return self._tokenizer.respelt(self._spellings)

    @cached_property
    def _found(self) -> re.Pattern[str]:
        """Every token that the tokenizer looks for in raw text, so that the longest of several counts here too."""
        raw = {token.content for token in self._tokenizer.added_tokens.values() if not token.normalized}
        return re.compile(any_of({*self._names, *raw} - {""}))
