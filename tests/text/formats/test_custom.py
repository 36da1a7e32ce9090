"""Raw input of custom tools out of JSON arguments."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.text.answer import Answer, Call, CallArguments, CallBegin, gather
from samovar.text.formats.custom import CustomInputs, wrapped
from samovar.text.formats.table import FORMATS
from tests.text.formats.parsing import check_order, cut, events_of

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-print(\"\\n\")\n+print('é🙂')\n*** End Patch\n"


def _output(arguments: str, name: str = "apply_patch") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _parser() -> CustomInputs:
    return CustomInputs(FORMATS["hermes"].make({}), ["apply_patch"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (json.dumps({"input": PATCH}), PATCH),
        (json.dumps({"input": PATCH}, ensure_ascii=False), PATCH),
        (wrapped(PATCH), PATCH),
        (json.dumps(json.dumps({"input": PATCH})), PATCH),
        (json.dumps({"why": [1, {"input": "no"}], "input": PATCH, "more": 2}), PATCH),
        (json.dumps(PATCH), PATCH),
        ('{"input": {"a": 1}}', '{"a": 1}'),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"input" "x"}', '{"input" "x"}'),
        ("{ }", "{ }"),
        ('{"input": ""}', "{}"),
    ],
)
def test_input_is_unwrapped(arguments: str, text: str) -> None:
    output = _output(arguments)
    whole = events_of(_parser(), [output])
    check_order(whole)
    # An empty input gives no piece, which `gather` shows as "{}".
    assert gather(whole).calls == (Call("apply_patch", text),)
    assert events_of(_parser(), output) == whole


def test_a_cut_input_is_what_there_is() -> None:
    output = _output('{"input": "cut \\n \\u00').partition("\\u00")[0]
    for end, text in ((len(output), "cut \n "), (len(output) - 2, "cut "), (output.index(' "cut'), "{}")):
        assert gather(events_of(_parser(), output[:end])).calls == (Call("apply_patch", text),)


def test_other_tools_keep_their_arguments() -> None:
    output = _output('{"input": "a"}', "other") + _output('{"input": "b"}') + _output('{"input": 1}', "other")
    assert gather(events_of(_parser(), output)) == Answer(
        "", "", (Call("other", '{"input": "a"}'), Call("apply_patch", "b"), Call("other", '{"input": 1}'))
    )


def test_input_flows() -> None:
    parser = _parser()
    pieces = (_output('{"input": "a\\'), "nb", "\\u00", 'e9"}}')
    pieces = (pieces[0].removesuffix("}\n</tool_call>"), *pieces[1:])
    assert [parser.push(piece) for piece in pieces][:3] == [
        [CallBegin(0, "apply_patch"), CallArguments(0, "a")],
        [CallArguments(0, "\nb")],
        [],
    ]


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1), st.booleans(), st.lists(st.integers(0, 60)))
def test_any_text_comes_through(text: str, ascii_only: bool, places: list[int]) -> None:
    output = _output(json.dumps({"input": text}, ensure_ascii=ascii_only))
    events = events_of(_parser(), cut(output, [min(place, len(output)) for place in places]))
    assert gather(events).calls == (Call("apply_patch", text),)
