"""What a parser gives does not depend on where the output is cut, and is what was written."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.text.answer import gather
from samovar.text.formats.reasoning import REASONING_FORMATS
from samovar.text.formats.table import FORMATS
from tests.text.formats.edges import EDGES, Edge
from tests.text.formats.grammar import Case, make_case
from tests.text.formats.parsing import check_order, cut, events_of

FAMILIES = sorted({format.name for format in FORMATS.values()})
PER_FAMILY = 16


def _check_cuts(case: Case, random_cuts: int) -> None:
    def events(pieces: list[str]) -> object:
        return events_of(FORMATS[case.family].make(case.schemas), pieces)

    text, rng = case.text, random.Random(case.text)
    whole = events([text])
    assert events(list(text)) == whole
    for place in range(1, len(text)):
        assert events(cut(text, [place])) == whole, place
    for _ in range(random_cuts):
        places = [rng.randint(0, len(text)) for _ in range(rng.randint(2, 12))]
        assert events(cut(text, places)) == whole, places


def _check_meaning(case: Case) -> None:
    events = events_of(FORMATS[case.family].make(case.schemas), [case.text])
    check_order(events)
    assert gather(events) == case.answer


@pytest.mark.parametrize("family", FAMILIES)
def test_random_answers_come_back_as_they_were_written(family: str) -> None:
    for seed in range(100):
        _check_meaning(make_case(family, seed))


@pytest.mark.parametrize("family", FAMILIES)
def test_some_random_answers_at_every_place(family: str) -> None:
    for seed in range(2):
        _check_cuts(make_case(family, seed), random_cuts=20)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_random_answers_at_every_place(family: str) -> None:
    for seed in range(PER_FAMILY):
        _check_cuts(make_case(family, seed), random_cuts=1000)


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge.family}-{edge.name}")
def test_edges_mean_what_they_should(edge: Edge) -> None:
    _check_meaning(edge.case)


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge.family}-{edge.name}")
def test_edges_at_every_place(edge: Edge) -> None:
    _check_cuts(edge.case, random_cuts=20)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_edges_at_a_thousand_places(family: str) -> None:
    for edge in EDGES:
        if edge.family == family:
            _check_cuts(edge.case, random_cuts=1000)


def test_there_are_two_hundred_outputs() -> None:
    assert len(FAMILIES) * PER_FAMILY + len(EDGES) >= 200
    assert {edge.family for edge in EDGES} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_output_that_is_cut_off_gives_a_beginning(family: str) -> None:
    for seed in range(12):
        case = make_case(family, seed)
        for end in range(len(case.text)):
            cut_off = gather(events_of(FORMATS[family].make(case.schemas), [case.text[:end]]))
            assert len(cut_off.calls) <= len(case.answer.calls)
            for call, whole in zip(cut_off.calls, case.answer.calls, strict=False):
                assert (call.name, call.id) == (whole.name, whole.id)
                # Where JSON is made by us, half a value may be spelt as the model began it.
                if FORMATS[family].syntax is not None and call.arguments != "{}":
                    assert whole.arguments.startswith(call.arguments), end


_FRAGMENTS = sorted(
    {marker for format in FORMATS.values() for marker in format.markers}
    | {'{"name": "f", ', '"arguments": ', '"parameters": {', "{", "}", "[", "]", '"', "\\", ",", ";", ":", "\n", " "}
    | {"f", "1", "null", "\\ud83d", "\\ude00", "\\u00e9", "```json", "function", "functions.f:0", "<function=", "<"}
    | {
        "<parameter=",
        "</parameter>",
        "</function>",
        ">",
        "f(a=",
        "'",
        "'''",
        ")",
        "(",
        "<think>",
        "</think>",
        "é",
        "🙂",
    }
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_output_is_an_error_and_no_cut_matters(data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(_FRAGMENTS), max_size=25)))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    inside = data.draw(st.booleans())
    reasoning = REASONING_FORMATS["qwen3"]
    for family in FAMILIES:
        format = FORMATS[family]
        schemas = {"f": {"properties": {"a": {"type": "string"}, "1": {"type": "integer"}}}}
        whole = events_of(format.make(schemas), [text])
        check_order(whole)
        assert events_of(format.make(schemas), cut(text, places)) == whole
        assert events_of(format.make(schemas), text) == whole
        around = events_of(reasoning.make(format.make(schemas), inside=inside), [text])
        assert events_of(reasoning.make(format.make(schemas), inside=inside), cut(text, places)) == around


@settings(max_examples=100, deadline=None)
@given(st.text(), st.sampled_from(FAMILIES))
def test_text_without_calls_is_text(text: str, family: str) -> None:
    events = events_of(FORMATS[family].make({}), text)
    assert gather(events).text == text
