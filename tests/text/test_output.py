"""Text and token counts of an answer that may end at a stop string."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.text.detokenizer import IncrementalDetokenizer
from samovar.text.gguf_tokenizer import load_gguf
from samovar.text.output import OutputText, TextPiece
from samovar.text.stop import StopMatcher
from tests.text.vocabularies import byte_level, texts

_BPE = load_gguf(byte_level())


def _output(stops: list[str], min_tokens: int = 0, include: bool = False) -> OutputText:
    return OutputText(IncrementalDetokenizer(_BPE), StopMatcher(stops, include), min_tokens)


@settings(deadline=None)
@given(texts, st.lists(st.sampled_from(["a", " ", "日", "\n\n", "🦜"]), max_size=2), st.lists(st.integers(1, 5)))
def test_tokens_up_to_the_one_that_completes_the_stop(text: str, stops: list[str], sizes: list[int]) -> None:
    ids = _BPE.encode(text)
    output, emitted, at, kept = _output(stops), "", 0, 0
    for size in [*sizes, len(ids)]:
        piece = output.push(ids[at : at + size])
        emitted += piece.text
        kept += piece.num_tokens
        at += size
        if piece.stop is not None:
            break
    emitted += output.finish().text
    shown = _BPE.decode(ids)
    if not any(stop in shown for stop in stops):
        assert (emitted, kept) == (shown, len(ids))
        return
    assert any(stop in _BPE.decode(ids[:kept]) for stop in stops)
    assert not any(stop in _BPE.decode(ids[: kept - 1]) for stop in stops)
    assert _BPE.decode(ids[:kept]).startswith(emitted)
    assert not any(stop in emitted for stop in stops)


def test_tokens_after_the_stop_are_not_counted() -> None:
    ids = _BPE.encode("one. two")
    output = _output(["."])
    piece = output.push(ids)
    assert (piece.text, piece.stop) == ("one", ".")
    assert 0 < piece.num_tokens < len(ids)
    assert output.push(ids) == TextPiece("", 0, ".")
    assert output.finish() == TextPiece("", 0, ".")


def test_stop_strings_wait_for_min_tokens() -> None:
    ids = _BPE.encode(".x.y.z")
    first = _output(["."], min_tokens=1).push(ids)
    assert first.text == ".x"
    assert _output(["."], min_tokens=len(ids)).push(ids) == TextPiece(".x.y.z", len(ids))


def test_the_end_gives_what_was_held() -> None:
    output = _output(["END"])
    assert output.push(_BPE.encode("the EN")).text == "the "
    assert output.finish() == TextPiece("EN", 0)
    half = _BPE._backend.token_to_id("ð")
    assert half is not None
    output = _output(["\ufffd"], include=True)
    assert output.push([half]) == TextPiece("", 1)
    assert output.finish() == TextPiece("\ufffd", 0, "\ufffd")
