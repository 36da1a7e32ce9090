"""What a client's text spells is marked where it is a control token, and nothing else is touched."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, normalizers

from samovar.text.marks import MARK, unmarked
from samovar.text.tokenizer import SpecialTokens, Tokenizer
from samovar.text.turns.controls import Controls, Framing
from samovar.text.turns.marked_encoder import MarkedEncoder
from tests.text.turns.test_splitting import WORDS, metaspace
from tests.text.vocabularies import _trained

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|im_end|", "|>x", "[INST]", "<s>")
"""One begins another, and one begins inside another."""
ORDINARY = ("<tool_call>", "\n\n\n", "<s>s")


def tokenizer(**flags: bool) -> Tokenizer:
    backend = tokenizers.Tokenizer.from_str(_trained().to_str())
    backend.decoder = decoders.ByteLevel()
    if flags.pop("nfc", False):
        backend.normalizer = normalizers.NFC()
    flags = {"normalized": False, **flags}
    backend.add_special_tokens([AddedToken(word, special=True, **flags) for word in SPECIAL])
    backend.add_tokens([AddedToken(word, normalized=False) for word in ORDINARY])
    return Tokenizer(backend, SpecialTokens())


TOKENIZERS = {
    "plain": tokenizer(),
    "nfc": tokenizer(nfc=True),
    "takes space behind": tokenizer(rstrip=True),
    "takes space before": tokenizer(lstrip=True),
    "single words": tokenizer(single_word=True),
    "normalized": tokenizer(normalized=True),
}
PLAIN = TOKENIZERS["plain"]
CONTROLS = Controls(PLAIN)
texts = st.lists(
    st.one_of(
        st.sampled_from(
            [*SPECIAL, *ORDINARY, "<|im_", "end|>", "<", "|>", "x", " ", "é", "日本", "[IN", "ST]", "\u212a"]
        ),
        st.text(max_size=4),
    ),
    max_size=10,
).map("".join)
pieces = st.lists(st.tuples(st.booleans(), texts), max_size=6)
"""Of a prompt: whether a client said it, and the text."""


def prompt(parts: list[tuple[bool, str]]) -> str:
    return "".join([CONTROLS.value(text) if said else text for said, text in parts])


@settings(deadline=None)
@given(texts)
def test_a_mark_stands_in_every_control_token(text: str) -> None:
    marked = CONTROLS.value(text)
    assert unmarked(marked) == text
    assert not any(word in marked for word in SPECIAL)
    if not any(word in text for word in SPECIAL):
        assert marked == text or marked == text + MARK
    if not any(word in text or text.endswith(word[:1]) for word in SPECIAL) and len(text) < 2:
        assert marked is text


@settings(deadline=None)
@given(texts, texts)
def test_nor_in_one_that_two_texts_make_up(first: str, second: str) -> None:
    together = CONTROLS.value(first) + CONTROLS.value(second)
    assert not any(word in together for word in SPECIAL)


def literally(tokenizer: Tokenizer, parts: list[tuple[bool, str]]) -> list[int]:
    """The long way, where nothing takes the space beside it: only a template's control tokens cut the text."""
    text, own = "", []
    for said, part in parts:
        own += [] if said else [range(len(text) + at.start(), len(text) + at.end()) for at in _WORDS.finditer(part)]
        text += part
    ids, done = [], 0
    for place in own:
        ids += tokenizer.encode(text[done : place.start], allow_special=False)
        ids += tokenizer.encode(text[place.start : place.stop])
        done = place.stop
    return ids + tokenizer.encode(text[done:], allow_special=False)


_WORDS = re.compile("|".join(re.escape(word) for word in sorted((*SPECIAL, *ORDINARY), key=len, reverse=True)))


@settings(max_examples=300, deadline=None)
@given(pieces)
def test_marked_text_is_spelt_out(parts: list[tuple[bool, str]]) -> None:
    for name in ("plain", "nfc"):
        one = TOKENIZERS[name]
        # A template does not begin a token that a client ends.
        if any(_WORDS.search(parts[at][1] + parts[at + 1][1], len(parts[at][1]) - 12) for at in range(len(parts) - 1)):
            continue
        assert MarkedEncoder(one, CONTROLS.marked_ids).encode(prompt(parts)) == literally(one, parts)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_without_marks_it_is_the_tokenizer(name: str, text: str) -> None:
    one = TOKENIZERS[name]
    ids = MarkedEncoder(one, Controls(one).marked_ids).encode(text)
    if name in ("single words", "normalized"):
        # More is a token here than there: what a template writes without a space before it.
        assert one.decode(ids, skip_special_tokens=False) == text
    else:
        assert ids == one.encode(text)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(before=texts, said=texts, after=texts)
def test_a_client_s_text_is_never_a_control_token(name: str, before: str, said: str, after: str) -> None:
    """Beside a template's own tokens, whatever space these take."""
    one = TOKENIZERS[name]
    controls = Controls(one)
    quiet = re.sub(r"[<\[|]", "(", before), re.sub(r"[>\]|xs]", ")", after)
    marked = f"<|im_start|>{controls.value(quiet[0])} {controls.value(said)} <|im_end|>{controls.value(quiet[1])}"
    ids = MarkedEncoder(one, controls.marked_ids).encode(marked)
    special = [id for id in ids if id in one.special_ids]
    expected = [one.encode(word)[0] for word in ("<|im_start|>", "<|im_end|>")]
    assert special == (expected if name != "single words" else special)
    assert set(special) <= set(expected)
    shown = one.decode(ids, skip_special_tokens=False)
    if name == "plain":
        assert shown == unmarked(marked)


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@settings(deadline=None)
@given(text=texts)
def test_sentencepiece(scheme: str, text: str) -> None:
    """Where the beginning of a text is treated differently, too."""
    one = metaspace(scheme)
    ids = {id for id, token in one.added_tokens.items() if token.content.startswith("<|im")}
    without = metaspace(scheme, tuple(word for word in WORDS if not word.startswith("<|im")))
    encoder = MarkedEncoder(one, ids)
    assert encoder.encode(text) == one.encode(text)
    marked = encoder.encode(re.sub(r"<(?=\|im_(start|end)\|>)", f"<{MARK}", text))
    assert not ids & set(marked)
    assert [one.token_text(id) for id in marked] == [without.token_text(id) for id in without.encode(text)]


def test_what_spells_nothing_stays_the_very_object() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "\\u00e9\\n"}'}}
    message = {"role": "assistant", "content": "a < b", "tool_calls": [call], "extra": {"x": [1, 2.0, None, True]}}
    assert CONTROLS.message(message) is message
    assert CONTROLS.value(["a", {"b": "c"}]) == ["a", {"b": "c"}]


def test_every_field_counts() -> None:
    word, marked = "<|im_end|>", f"<{MARK}|im_end|>"
    calls = [{"id": word, "function": {"name": word, "arguments": {word: [word]}}}]
    message = {"role": "user", "content": word, "name": word, "reasoning_content": word, "tool_calls": calls}
    found = json.dumps(CONTROLS.message({**message, word: word}), ensure_ascii=False)
    assert word not in found and found.count(marked) == 9
    # The role is what a template writes.
    assert CONTROLS.message({"role": "[INST]", "content": ""})["role"] == "[INST]"


@pytest.mark.parametrize(
    "hidden", ['{"a": "\\u003c|im_end|>"}', '{"\\u003c|im_end|\\u003E": 1}', '{"a": ["<|im_e\\u006ed|>"]}']
)
def test_escapes_hide_nothing(hidden: str) -> None:
    """Templates get arguments as objects."""
    call = {"function": {"name": "f", "arguments": hidden}}
    marked = CONTROLS.message({"role": "assistant", "content": "", "tool_calls": [call]})
    written = marked["tool_calls"][0]["function"]["arguments"]
    shown = json.dumps(json.loads(written), ensure_ascii=False)
    assert "<|im_end|>" not in shown and "<|im_end|>" in unmarked(shown)


@pytest.mark.parametrize(
    "arguments",
    ['{"a": "\\u00e9 <', '{"a": "\\u00e9"}', "[" * 5000 + "\\u003c", '"\\u003c|im_end|>"', '{"a": "\\ud800"}'],
)
def test_other_arguments_stay_as_they_are(arguments: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    marked: Any = CONTROLS.message({"role": "assistant", "content": "", "tool_calls": [call]})
    assert unmarked(marked["tool_calls"][0]["function"]["arguments"]) == arguments


def test_a_mark_that_somebody_sends_is_no_mark() -> None:
    assert CONTROLS.value(f"a{MARK}b") == "a\ufffdb"
    assert CONTROLS.value(f"<{MARK}|im_end|> ") == "<\ufffd|im_end|> "


def test_frames_of_results_are_kept_from_results_only() -> None:
    controls = Controls(PLAIN, Framing(results=frozenset({"<tool_call>"})))
    assert controls.message({"role": "user", "content": "<tool_call>"})["content"] == "<tool_call>"
    tool = controls.message({"role": "tool", "content": "<tool_call>", "tool_call_id": "<tool_call>"})
    assert tool["content"] == f"<{MARK}tool_call>" and tool["tool_call_id"] == "<tool_call>"
    ids = MarkedEncoder(PLAIN, controls.marked_ids).encode(f"<tool_call>{tool['content']}")
    call = PLAIN.encode("<tool_call>")[0]
    assert ids.count(call) == 1 and PLAIN.decode(ids) == "<tool_call><tool_call>"


def test_generated_letters_are_told_from_generated_tokens() -> None:
    letters = [id for letter in "<|im_end|>" for id in PLAIN.encode(letter, allow_special=False)]
    (token,) = PLAIN.encode("<|im_end|>")
    text = CONTROLS.spelt([*letters, token, *PLAIN.encode("a<")])
    assert text.count(MARK) >= 2 and text.endswith(f"<|im_end|>a<{MARK}") and unmarked(text) == "<|im_end|><|im_end|>a<"
    assert MarkedEncoder(PLAIN, CONTROLS.marked_ids).encode(text).count(token) == 1


def test_which_tokens_may_come_back() -> None:
    controls = Controls(PLAIN, Framing(frozenset({"<s>s"})), markers={"[INST]"})
    allowed = {word for word in (*SPECIAL, *ORDINARY) if controls.may_return(PLAIN.encode(word))}
    assert allowed == {"[INST]", "<tool_call>", "\n\n\n"}
