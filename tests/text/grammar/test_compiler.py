"""The cache of compiled grammars, and vocabularies of other kinds."""

from __future__ import annotations

import threading

import pytest
import tokenizers
from tokenizers import decoders, models

from samovar.base.errors import ConfigError, InvalidField
from samovar.text.grammar.body import Grammar
from samovar.text.grammar.compiler import GrammarCompiler, GrammarError
from samovar.text.grammar.limits import MAX_CACHED_BYTES, MAX_CACHED_GRAMMARS
from samovar.text.grammar.structured import structured_outputs
from samovar.text.grammar.vocabulary import build_vocabulary
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from tests.text.grammar.matching import Matching


def test_matchers_of_one_grammar_do_not_see_each_other(small: Matching) -> None:
    one, two = small.compiler.matcher('start: "a" "b"'), small.compiler.matcher('start: "a" "b"')
    assert one.consume_tokens(small.ids("a")) and one.validate_tokens(small.ids("b")) == 1
    assert two.validate_tokens(small.ids("b")) == 0 and two.validate_tokens(small.ids("a")) == 1


def test_the_cache_is_bounded_in_number_and_bytes(small_bpe: Tokenizer) -> None:
    compiler = GrammarCompiler(lambda: build_vocabulary(small_bpe, small_bpe.vocab_size))
    for number in range(MAX_CACHED_GRAMMARS + 5):
        compiler.matcher(f'start: "{number}"')
    assert len(compiler._compiled) == MAX_CACHED_GRAMMARS and 'start: "4"' not in compiler._compiled
    compiler.matcher('start: "5"')
    long = "\n" * (MAX_CACHED_BYTES // 2)
    compiler.matcher(f'start: "x"{long}')
    compiler.matcher(f'start: "y"{long}')
    assert [text[:10] for text in compiler._compiled] == ['start: "y"']
    compiler.fresh('start: "z"')
    compiler.fresh('start: "z"')
    assert compiler._cached_bytes == sum(map(len, compiler._compiled))


def test_what_does_not_compile_is_not_kept(small: Matching) -> None:
    for _ in range(2):
        with pytest.raises(GrammarError):
            small.compiler.matcher("start: nowhere")


def test_several_threads_share_a_compiler(small: Matching) -> None:
    """Also what the library keeps inside: each thread follows its own text through one grammar."""
    grammar = 'start: %json {"type": "object"}'
    failed: list[str] = []

    def work(number: int) -> None:
        for turn in range(20):
            matcher = small.compiler.matcher(grammar)
            for token_id in small.ids(f'{{"k{number}": [{turn}, "é{number}"]}}'):
                matcher.compute_bitmask()
                if not matcher.consume_token(token_id):
                    failed.append(f"{number} {turn}")
                    return
            if not matcher.is_accepting():
                failed.append(f"{number} {turn} end")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_sentencepiece_vocabulary(small_spm: Tokenizer) -> None:
    """Its tokens carry their spaces, and text in the middle of an answer gets none before it."""
    matching = Matching(small_spm)
    made = structured_outputs({"json": {"type": "object", "properties": {"a": {"type": "string"}}}})
    assert made is not None
    grammar = matching.grammar(made)
    matcher = matching.compiler.matcher(grammar.text)
    text = '{"a": "hello world"}'
    ids = [i for i in matching.ids("\n" + text)]
    while b"".join(small_spm.token_bytes(i) for i in ids) != text.encode():
        ids = ids[1:]
    assert matcher.consume_tokens(ids) and matcher.is_accepting()


def test_ids_beyond_the_tokenizer_are_never_allowed(small_bpe: Tokenizer) -> None:
    wide = small_bpe.vocab_size + 70
    compiler = GrammarCompiler(lambda: build_vocabulary(small_bpe, wide))
    bits = int.from_bytes(compiler.matcher("start: /(.|\\n)*/").compute_bitmask(), "little")
    allowed = [i for i in range(wide) if bits >> i & 1]
    assert max(allowed) < small_bpe.vocab_size and len(allowed) > 300


def test_text_never_takes_a_special_token(small: Matching) -> None:
    """Neither as the token nor, in a rule of that token, as its text."""
    marker = small.special["<|im_start|>"]
    free = small.compiler.matcher('start: /(.|\\n)+/ "x"')
    assert not int.from_bytes(free.compute_bitmask(), "little") >> marker & 1
    named = small.compiler.matcher("start: <|im_start|>")
    assert int.from_bytes(named.compute_bitmask(), "little") == 1 << marker


def test_a_vocabulary_that_cannot_end_an_answer_is_refused() -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    compiler = GrammarCompiler(lambda: build_vocabulary(Tokenizer(backend, SpecialTokens()), 1))
    with pytest.raises(ConfigError, match="end-of-text"):
        compiler.vocabulary()
    with pytest.raises(InvalidField, match="end-of-text"):
        compiler.check(Grammar('start: "a"'), "response_format")
