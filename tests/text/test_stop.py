"""Stop strings against their definition, however the text is cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import InvalidField
from samovar.text.stop import StopMatcher


def _reference(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """By definition: the match that ends first, of those the longest."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[:end] if include else text[: end - len(stop)], stop
    return text, None


def _run(pieces: Iterable[str], stops: list[str], include: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include)
    out = "".join(matcher.push(piece)[0] for piece in pieces)
    return (out, matcher.stopped) if matcher.stopped is not None else (out + matcher.flush(), None)


def _cut(text: str, cuts: list[int]) -> list[str]:
    at = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(at)]


alphabet = st.text(alphabet="abX", max_size=30)
stop_lists = st.lists(st.text(alphabet="abX", min_size=1, max_size=6), max_size=4)


@settings(deadline=None)
@given(alphabet, stop_lists, st.lists(st.integers(0, 100), max_size=12), st.booleans())
def test_the_result_does_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int], include: bool) -> None:
    assert _run(_cut(text, cuts), stops, include) == _reference(text, stops, include)


@settings(deadline=None)
@given(alphabet, stop_lists)
def test_only_a_possible_beginning_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    emitted = ""
    for at, char in enumerate(text):
        piece, stop = matcher.push(char)
        emitted += piece
        if stop is not None:
            break
        held = text[len(emitted) : at + 1]
        longest = max(
            (n for s in stops for n in range(len(s)) if text[: at + 1].endswith(s[:n])),
            default=0,
        )
        assert len(held) == longest


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        (["\n\nUser:"], ["Hi.\n", "\nUs", "e", "r: x"], ("Hi.", "\n\nUser:")),
        (["\n\nUser:"], ["Hi.\n", "\nUsual"], ("Hi.\n\nUsual", None)),
        (["abcd", "bc"], ["xabcd"], ("xa", "bc")),
        (["bc", "abc"], ["xabcd"], ("x", "abc")),
        (["aab"], ["aa", "ab"], ("a", "aab")),
        ([], ["any", "thing"], ("anything", None)),
        (["é👍"], ["né", "👍!"], ("n", "é👍")),
    ],
)
def test_examples(stops: list[str], pieces: list[str], expected: tuple[str, str | None]) -> None:
    assert _run(pieces, stops) == expected


def test_the_stop_string_is_kept_on_request() -> None:
    assert _run(["</to", "ol> more"], ["</tool>"], include=True) == ("</tool>", "</tool>")


def test_nothing_comes_after_a_stop() -> None:
    matcher = StopMatcher(["."])
    assert matcher.push("a.b") == ("a", ".")
    assert matcher.push("c.d") == ("", ".")
    assert matcher.flush() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidField) as error:
        StopMatcher(["x", ""])
    assert error.value.param == "stop"


def test_overlaps_cost_no_more_than_the_text() -> None:
    matcher = StopMatcher(["a" * 5_000 + "b"])
    emitted = sum(len(matcher.push("a")[0]) for _ in range(50_000))
    assert emitted == 45_000
