"""Texts to ids by parts: the same as in one go; generated ids come back; little memory costs only time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from samovar.base.keys import extend_keys, join_keys, pack_tokens, unpack_tokens
from samovar.text.marks import MARK, unmarked
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from samovar.text.turns.controls import Controls
from samovar.text.turns.encoder import Encoded, TurnEncoder
from samovar.text.turns.marked_encoder import MarkedEncoder
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


def with_special(tokenizer: Tokenizer, *words: str) -> Tokenizer:
    """A twin that calls these tokens special."""
    backend = Backend.from_str(tokenizer.to_json())
    backend.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in words])
    return Tokenizer(backend, SpecialTokens())


SPECIAL = with_special(TOKENIZERS["plain"], "<|x_start|>", "<|x_end|>", "<|mark|>")
CONTROLS = Controls(SPECIAL, markers={"<|mark|>"})


def test_control_tokens_that_no_client_sees_are_not_remembered() -> None:
    one = TurnEncoder(SPECIAL, PartMemory(1 << 20), CONTROLS)
    first = one.encode("<|x_start|>", CHAIN)
    assert first.end is not None
    (end,) = SPECIAL.encode("<|x_end|>")
    for text in ("a<|x_start|>b", "<|x_end|>", "a<|x_end|>b"):
        assert one.learn(first.end, [*SPECIAL.encode(text), end], [end]) is None
    for text in ("", "a", "a<|mark|>b"):
        assert one.learn(first.end, [*SPECIAL.encode(text), end], [end]) == text
    one.memory.check()


def test_what_a_model_spelt_letter_by_letter_comes_back_as_letters() -> None:
    one = TurnEncoder(SPECIAL, PartMemory(1 << 20), CONTROLS)
    first = one.encode("<|x_start|>", CHAIN)
    letters = [id for letter in "<|x_end|>" for id in SPECIAL.encode(letter)]
    mark = SPECIAL.encode("<|mark|>")
    assert first.end is not None
    text = one.learn(first.end, [*letters, *mark, *letters, EOS], [EOS])
    assert text is not None and unmarked(text) == "<|x_end|><|mark|><|x_end|>" and MARK in text
    whole = one.encode(f"<|x_start|>{text}<|x_end|>", CHAIN)
    assert ids_of(whole) == [*ids_of(first), *letters, *mark, *letters, *SPECIAL.encode("<|x_end|>")]
    # In another place it is encoded anew, as letters all the same.
    elsewhere = ids_of(one.encode(f"<|x_end|>{text}", CHAIN))
    assert elsewhere.count(SPECIAL.encode("<|x_end|>")[0]) == 1 and elsewhere.count(mark[0]) == 1


@settings(max_examples=100, deadline=None)
@given(said=texts, template=texts, again=texts)
def test_marked_texts_in_parts(said: str, template: str, again: str) -> None:
    """The same as in one go, from any place, however little is remembered."""
    for word in ("<|x_end|>", "<|x_"):
        marked = CONTROLS.value(f"{word}{said}{word}")
        text = f"<|x_start|>{marked}<|x_end|>{template}<|x_start|>{marked}"
        expected = MarkedEncoder(SPECIAL, CONTROLS.marked_ids).encode(text)
        for size in (1 << 20, 3000, 0):
            one = TurnEncoder(SPECIAL, PartMemory(size), CONTROLS)
            assert ids_of(one.encode(text, CHAIN)) == ids_of(one.encode(text, CHAIN)) == expected
            place = one.place_in(one.encode(text, CHAIN), len(marked))
            if place is not None:
                longer = one.encode_behind(place, again)
                whole = text.removesuffix(marked) + again
                assert longer is not None
                assert ids_of(longer) == MarkedEncoder(SPECIAL, CONTROLS.marked_ids).encode(whole)
            one.memory.check()


def test_marks_do_not_count_towards_a_length() -> None:
    one = TurnEncoder(SPECIAL, PartMemory(1 << 20), CONTROLS)
    told: list[int] = []
    text = CONTROLS.value("<|x_end|>" * 500)
    encoded = one.encode(text, CHAIN, told.append)
    assert told == [1 + SPECIAL.at_least("<|x_end|>" * 500)]  # behind the prefix
    assert 0 < told[0] <= len(unpack_tokens(encoded.packed))


def test_who_only_looks_leaves_everything_as_it_was() -> None:
    one = TurnEncoder(SPECIAL, PartMemory(1 << 20), CONTROLS)
    for text in ("<|x_start|>a<|x_end|>", "<|x_start|>b<|x_end|>"):
        one.encode(text, CHAIN)
    before, size = list(one.memory._leaves), one.memory.num_bytes
    for text in ("<|x_start|>a<|x_end|>", "<|x_start|>c<|x_end|>"):
        looked = one.encode(text, CHAIN, remember=False)
        assert looked.end is None and ids_of(looked) == SPECIAL.encode(text)
    assert list(one.memory._leaves) == before and one.memory.num_bytes == size


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
