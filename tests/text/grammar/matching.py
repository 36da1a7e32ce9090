"""Whether a text is in a grammar's language, token by token as a model would write it."""

from __future__ import annotations

from collections.abc import Mapping

from samovar.text.grammar.body import Body, Grammar, Reasoning, grammar_of, split_special
from samovar.text.grammar.compiler import GrammarCompiler
from samovar.text.grammar.vocabulary import build_vocabulary
from samovar.text.tokenizer import Tokenizer


class Matching:
    """One vocabulary, and the compiler over it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special: Mapping[str, int] = {tokenizer.token_text(i): i for i in tokenizer.special_ids}
        self.compiler = GrammarCompiler(lambda: build_vocabulary(tokenizer, tokenizer.vocab_size))

    def grammar(self, body: Body, reasoning: Reasoning | None = None) -> Grammar:
        grammar = grammar_of(body, self.special, reasoning)
        self.compiler.check(grammar, "grammar")
        return grammar

    def ids(self, text: str) -> list[int]:
        pieces = split_special(text, self.special)
        return [
            token_id
            for piece in pieces
            for token_id in (self.tokenizer.encode(piece, allow_special=False) if isinstance(piece, str) else [piece])
        ]

    def accepts(self, grammar: Grammar, text: str) -> bool:
        matcher = self.compiler.matcher(grammar.text)
        ids = self.ids(text)
        return matcher.validate_tokens(ids) == len(ids) and matcher.consume_tokens(ids) and matcher.is_accepting()
