"""A tokenizer as the grammar library needs it: every token's exact bytes, and how forced text is spelled in tokens.

The bytes are `Tokenizer.token_bytes`, the ones the answer's text is made of, so that what a grammar allows is what a
client reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from samovar.base.errors import ConfigError
from samovar.text.grammar.limits import parser_limits
from samovar.text.tokenizer import Tokenizer

_ANCHOR = "\n"
"""What stands before a text that continues another one, for vocabularies that put a space before every text:
SentencePiece joins it with nothing."""


MAX_REMEMBERED, MAX_REMEMBERED_CHARACTERS = 4096, 256
"""Of forced texts: the keys of a schema are asked for again at every token of each."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Immutable; used from several threads."""

    library: LLTokenizer
    num_tokens: int
    """Width of a mask: the model's, which may be more than the tokenizer's."""
    eos_ids: tuple[int, ...]


def build_vocabulary(tokenizer: Tokenizer, num_tokens: int) -> Vocabulary:
    """`num_tokens`: how many logits the model has. About 0.3 s for 49,152 tokens. Raises ConfigError for a tokenizer
    without an end-of-text token: nothing could end an answer then."""
    eos_ids = tuple(token_id for token_id in tokenizer.eos_ids if token_id < num_tokens)
    if not eos_ids:
        raise ConfigError("constrained output needs a tokenizer with an end-of-text token, this one names none")
    spelling = _Spelling(tokenizer, num_tokens, eos_ids[0])
    library = LLTokenizer(TokenizerWrapper(spelling), n_vocab=num_tokens, eos_token=list(eos_ids))
    spelling.library = library
    vocabulary = Vocabulary(library, num_tokens, eos_ids)
    # The first mask of a vocabulary sorts it, which takes as long as 10,000 others.
    LLMatcher(library, 'start: "a"', log_level=0, limits=parser_limits()).compute_bitmask()
    return vocabulary


class _Spelling:
    """The attributes and the call that `llguidance.TokenizerWrapper` wants of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, num_tokens: int, eos_id: int) -> None:
        self.library: LLTokenizer | None = None
        self.eos_token_id = eos_id
        self.bos_token_id = None
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(num_tokens)]
        self.special_token_ids = sorted(token_id for token_id in tokenizer.special_ids if token_id < num_tokens)
        self._tokenizer = tokenizer
        self._remembered = lru_cache(MAX_REMEMBERED)(self._spell)

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of a text in the middle of another. Where the tokenizer cannot say (it changes the text), the longest
        tokens first."""
        if isinstance(text, bytes):
            # Only how the wrapper asks whether bytes are understood.
            raise TypeError("text is spelled from str")
        return self._remembered(text) if len(text) <= MAX_REMEMBERED_CHARACTERS else self._spell(text)

    def _spell(self, text: str) -> list[int]:
        prefix = _ANCHOR if self._tokenizer.codec.strips_leading_space else ""
        ids = self._tokenizer.encode(prefix + text, allow_special=False)
        wanted = text.encode("utf-8")
        spelled = b"".join(self._bytes(token_id) for token_id in ids)
        while ids and len(spelled) > len(wanted):
            spelled = spelled[len(self._bytes(ids[0])) :]
            ids = ids[1:]
        if spelled == wanted:
            return ids
        return [] if self.library is None else self.library.greedy_tokenize(text)

    def _bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id] if token_id < len(self.tokens) else b""
