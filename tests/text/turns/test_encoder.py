"""Texts to ids by parts: the same as in one go; generated ids come back; little memory costs only time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.keys import extend_keys, join_keys, pack_tokens, unpack_tokens
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.encoder import Encoded, TurnEncoder
from samovar.text.turns.memory import Chain, PartMemory
from tests.text.turns.test_splitting import TOKENIZERS, WORDS, texts

CHAIN = Chain(b"r" * 16, 4, pack_tokens([7]))
EOS = 9999


def encoder(tokenizer: Tokenizer, max_bytes: int = 1 << 20) -> TurnEncoder:
    return TurnEncoder(tokenizer, PartMemory(max_bytes))


def ids_of(encoded: Encoded, chain: Chain = CHAIN) -> list[int]:
    assert encoded.keys == join_keys(extend_keys(chain.root, encoded.packed, chain.block_tokens))
    assert encoded.packed.startswith(chain.prefix)
    return unpack_tokens(encoded.packed[len(chain.prefix) :])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_texts_that_share_beginnings(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    sizes = (1 << 20, 3000, 0)
    encoders = [encoder(tokenizer, size) for size in sizes]
    text = ""
    for piece in data.draw(st.lists(texts, min_size=1, max_size=6)):
        text = text[: data.draw(st.integers(0, len(text)))] + piece if data.draw(st.booleans()) else text + piece
        for one in encoders:
            assert ids_of(one.encode(text, CHAIN)) == tokenizer.encode(text)
            one.memory.check()


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(kept=texts, dropped=texts, added=texts, again=texts)
def test_going_on_from_a_place(name: str, kept: str, dropped: str, added: str, again: str) -> None:
    tokenizer = TOKENIZERS[name]
    one = encoder(tokenizer)
    place = one.place_in(one.encode(kept + dropped, CHAIN), len(dropped))
    if place is None:
        assert tokenizer is TOKENIZERS["normalized tokens too"] or not kept + dropped
        return
    for more in (added, again):
        longer = one.encode_behind(place, more)
        assert longer is not None and ids_of(longer) == tokenizer.encode(kept + more)
    one.memory.check()


def test_a_token_that_completes_what_stood_at_the_end() -> None:
    """`<|a` is a token of its own until `b|>` follows."""
    one = encoder(TOKENIZERS["plain"])
    first = one.encode("<s>x<|a", CHAIN)
    place = one.place_in(first, 0)
    assert place is not None
    longer = one.encode_behind(place, "b|>")
    assert longer is not None and ids_of(longer) == TOKENIZERS["plain"].encode("<s>x<|ab|>")


def test_generated_ids_come_back() -> None:
    tokenizer = TOKENIZERS["plain"]
    one = encoder(tokenizer)
    prompt = one.encode("<|im_start|>user<|im_end|><|im_start|>", CHAIN)
    assert prompt.end is not None
    odd = [token for letter in "hello" for token in tokenizer.encode(letter)]
    assert odd != tokenizer.encode("hello")
    call = tokenizer.encode("<tool_call>{}")
    assert one.learn(prompt.end, [*odd, *call, EOS], [EOS]) == "hello<tool_call>{}"
    text = "<|im_start|>user<|im_end|><|im_start|>hello<tool_call>{}<|im_end|>"
    start = unpack_tokens(prompt.packed)[1:]
    assert ids_of(one.encode(text, CHAIN)) == [*start, *odd, *call, *tokenizer.encode("<|im_end|>")]
    # In no other place, chain or text.
    elsewhere = text.replace("user", "User")
    assert ids_of(one.encode(elsewhere, CHAIN)) == tokenizer.encode(elsewhere)
    other = Chain(b"s" * 16, 4)
    assert ids_of(one.encode(text, other), other) == tokenizer.encode(text)
    longer = text.replace("hello", "hello!")
    assert ids_of(one.encode(longer, CHAIN)) == tokenizer.encode(longer)
    one.memory.check()


def test_the_newest_of_two_outputs_of_one_text_counts() -> None:
    tokenizer = TOKENIZERS["plain"]
    one = encoder(tokenizer)
    prompt = one.encode("<s>", CHAIN)
    assert prompt.end is not None
    for pieces in (list("hello"), ["hello"], ["hel", "l", "o"]):
        odd = [token for piece in pieces for token in tokenizer.encode(piece)]
        one.learn(prompt.end, [*odd, EOS], [EOS])
        assert ids_of(one.encode("<s>hello</s>x", CHAIN)) == tokenizer.encode("<s>") + odd + tokenizer.encode("</s>x")
        one.memory.check()


@settings(max_examples=150, deadline=None)
@given(prompt=texts, output=st.lists(st.integers(0, 700), max_size=12), after=texts)
def test_any_output(prompt: str, output: list[int], after: str) -> None:
    """What is remembered comes back, and everything else is as if nothing had been."""
    tokenizer = TOKENIZERS["plain"]
    one = encoder(tokenizer)
    first = one.encode("<s>" + prompt, CHAIN)
    assert first.end is not None
    output = [token % tokenizer.vocab_size for token in output]
    text = one.learn(first.end, output, [EOS])
    whole = tokenizer.decode(output, skip_special_tokens=False, at_start=False)
    assert text in (None, whole)
    longer = f"<s>{prompt}{whole}</s>{after}"
    ids = ids_of(one.encode(longer, CHAIN))
    if text is None:
        assert ids == tokenizer.encode(longer)
    else:
        assert ids == ids_of(first) + output + tokenizer.encode("</s>" + after)
    one.memory.check()


@pytest.mark.parametrize("word", [word for word in WORDS if len(word) > 3])
def test_a_token_spelt_letter_by_letter_is_no_token(word: str) -> None:
    tokenizer = TOKENIZERS["plain"]
    one = encoder(tokenizer)
    first = one.encode("<s>", CHAIN)
    spelt = [token for letter in word for token in tokenizer.encode(letter, allow_special=False)]
    assert first.end is not None and one.learn(first.end, [*spelt, EOS], [EOS]) is None
    text = f"<s>{word}</s>"
    assert ids_of(one.encode(text, CHAIN)) == tokenizer.encode(text)


@given(st.lists(st.sampled_from(["a", " b", "cd", "\n"]), max_size=8), st.data())
def test_shorten(pieces: list[str], data: st.DataObject) -> None:
    tokenizer = TOKENIZERS["plain"]
    one = encoder(tokenizer)
    ids = [token for piece in pieces for token in tokenizer.encode(piece)]
    text = tokenizer.decode(ids[: data.draw(st.integers(0, len(ids)))])
    short = one.shorten(ids, text)
    assert short is not None and short == ids[: len(short)]
    assert tokenizer.decode(short).strip() == text.strip()
    assert one.shorten(ids, text + "unknown") is None


def test_too_long_is_told_before_anything_is_encoded() -> None:
    tokenizer = TOKENIZERS["plain"]
    one = encoder(tokenizer)
    told: list[int] = []
    known = one.encode("<s>" + "hello" * 10 + "</s>", CHAIN, told.append)
    new = "word " * 1000
    exact = len(unpack_tokens(known.packed))
    one.encode("<s>" + "hello" * 10 + "</s>" + new, CHAIN, told.append)
    assert told[0] <= exact and told[0] + 30 < told[1] <= exact + len(tokenizer.encode(new))

    class Refused(Exception):
        pass

    def refuse(tokens: int) -> None:
        raise Refused

    with pytest.raises(Refused):
        one.encode("<s>another", CHAIN, refuse)
    one.memory.check()
