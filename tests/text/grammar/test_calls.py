"""Grammars of tool calls in every family's spelling."""

from __future__ import annotations

import pytest

from samovar.base.errors import InvalidField
from samovar.text.formats import syntax
from samovar.text.formats.syntax import CallSyntax
from samovar.text.grammar.body import Reasoning, split_special
from samovar.text.grammar.calls import ToolRule, free_with_calls, required_calls
from samovar.text.grammar.limits import MAX_CALLS, MAX_NUMBERED_CALLS
from tests.text.grammar.matching import Matching

SPELLINGS = {name: value for name, value in vars(syntax).items() if isinstance(value, CallSyntax)}
EACH = pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    ToolRule("get", {**CITY, "additionalProperties": False}, "tools[0].parameters", strict=True),
    ToolRule("get_time", {"properties": {"n": {"type": "integer"}}, "required": ["n"]}, "tools[1].parameters"),
    ToolRule("ping", None, "tools[2]"),
    ToolRule("apply_patch", None, "tools[3]", custom=True),
]
PARIS, THREE = '{"city": "Paris}{"}', '{"n": 3}'


def calls(s: CallSyntax, *named: tuple[str, str]) -> str:
    label = [f"{s.numbered}{number}" if s.numbered else "" for number in range(len(named))]
    one = [f"{s.begin}{name}{number}{s.middle}{text}{s.end}" for (name, text), number in zip(named, label, strict=True)]
    return s.section_begin + s.separator.join(one) + s.section_end


@EACH
def test_a_required_call_fits_a_tool_and_nothing_else_comes(small: Matching, spelling: CallSyntax) -> None:
    one = small.grammar(required_calls(spelling, TOOLS, small.special, parallel=False))
    many = small.grammar(required_calls(spelling, TOOLS, small.special, parallel=True))
    for name, text in (("get", PARIS), ("get_time", THREE), ("ping", "{}"), ("apply_patch", '{"input": "*** A\\n"}')):
        assert small.accepts(one, calls(spelling, (name, text)))
        assert small.accepts(many, calls(spelling, (name, text)))
    for name, text in (
        ("get", '{"cit": "Paris"}'),
        ("get", '{"city": 5}'),
        ("get_time", '{"n": "3"}'),
        ("ping", '{"a": 1}'),
        ("apply_patch", "*** A"),
        ("other", "{}"),
        ("ge", PARIS),
        ("get", "[]"),
    ):
        assert not small.accepts(many, calls(spelling, (name, text)))
    assert not small.accepts(many, "")
    assert not small.accepts(many, "Sure! " + calls(spelling, ("get", PARIS)))
    assert not small.accepts(many, calls(spelling, ("get", PARIS)) + " done")


@EACH
def test_parallel_calls_only_where_asked_for_and_bounded(small: Matching, spelling: CallSyntax) -> None:
    one = small.grammar(required_calls(spelling, TOOLS, small.special, parallel=False))
    many = small.grammar(required_calls(spelling, TOOLS, small.special, parallel=True))
    both = calls(spelling, ("get_time", THREE), ("get", PARIS))
    assert small.accepts(many, both) and not small.accepts(one, both)
    most = MAX_NUMBERED_CALLS if spelling.numbered else MAX_CALLS
    assert small.accepts(many, calls(spelling, *[("ping", "{}")] * most))
    assert not small.accepts(many, calls(spelling, *[("ping", "{}")] * (most + 1)))


@EACH
def test_three_hundred_tools_fit(small: Matching, spelling: CallSyntax) -> None:
    """Also at their names, where all of them may still come."""
    tools = [ToolRule(f"mcp__server{i % 7}__a_tool_{i}", CITY, "tools", strict=True) for i in range(300)]
    last = calls(spelling, (tools[-1].name, PARIS))
    assert small.accepts(small.grammar(required_calls(spelling, tools, small.special, parallel=True)), last)
    assert small.accepts(small.grammar(free_with_calls(spelling, tools, small.special, parallel=True)), last)


def test_a_numbered_call_has_its_own_number(small: Matching) -> None:
    grammar = small.grammar(required_calls(syntax.KIMI_K2, TOOLS, small.special, parallel=True))
    good = calls(syntax.KIMI_K2, ("ping", "{}"), ("get", PARIS))
    assert small.accepts(grammar, good)
    assert not small.accepts(grammar, good.replace("get:1", "get:0"))


@EACH
def test_free_text_until_a_call_begins_which_must_fit(small: Matching, spelling: CallSyntax) -> None:
    free = small.grammar(free_with_calls(spelling, TOOLS, small.special, parallel=True))
    call = calls(spelling, ("get", PARIS))
    assert small.accepts(free, "") and small.accepts(free, "A < b, [1] and so on.\n") and small.accepts(free, call)
    assert small.accepts(free, calls(spelling, ("get_time", '{"anything": [1]}')))
    for wrong in (call.replace('"city"', '"town"'), call.replace("get", "got", 1)):
        assert not small.accepts(free, wrong)
        # Without a text that marks a call, only an answer that begins with one holds calls.
        assert small.accepts(free, "Well. " + wrong) is (not spelling.trigger)
    assert small.accepts(free, f"First.\n{call} and\n{call} done")


@EACH
def test_without_parallel_calls_nothing_follows_the_first(small: Matching, spelling: CallSyntax) -> None:
    free = small.grammar(free_with_calls(spelling, TOOLS, small.special, parallel=False))
    call = calls(spelling, ("get", PARIS))
    assert small.accepts(free, "Only text.") and small.accepts(free, call)
    assert not small.accepts(free, calls(spelling, ("get", PARIS), ("get", PARIS)))
    assert not small.accepts(free, call + call)


@pytest.mark.parametrize("marker", ["<|im_start|>", "<toolé>"])
def test_markers_that_are_tokens_of_the_vocabulary(small: Matching, marker: str) -> None:
    """One control token, which no text can spell, and one that is matched in any text."""
    spelling = CallSyntax(begin=marker, middle="<|im_start|>", end="", separator="", trigger=marker)
    required = small.grammar(required_calls(spelling, TOOLS, small.special, parallel=True))
    free = small.grammar(free_with_calls(spelling, TOOLS, small.special, parallel=True))
    both = calls(spelling, ("get_time", THREE), ("get", PARIS))
    assert small.accepts(required, both) and small.accepts(free, "Now: " + both + "ok")
    assert not small.accepts(free, "Now: " + both.replace("city", "town"))
    assert not small.accepts(required, calls(spelling, ("ge", PARIS)))


@EACH
def test_reasoning_comes_before_calls(small: Matching, spelling: CallSyntax) -> None:
    body = required_calls(spelling, TOOLS, small.special, parallel=False)
    call = calls(spelling, ("ping", "{}"))
    closed = small.grammar(body, Reasoning("<think>", "</think>", opened=False))
    opened = small.grammar(body, Reasoning("<think>", "</think>", opened=True))
    assert small.accepts(closed, call) and small.accepts(closed, f"<think>Hm {call} or\n</think>\n\n{call}")
    assert small.accepts(opened, f"Hm</think>{call}") and not small.accepts(opened, call)
    assert not small.accepts(opened, f"Hm</think> I say {call}")


def test_a_schema_that_cannot_be_compiled_is_named(small: Matching) -> None:
    bad = ToolRule("b", {"type": "object", "properties": {"a": {"type": "nonsense"}}}, "tools[7].parameters")
    with pytest.raises(InvalidField) as caught:
        small.grammar(required_calls(syntax.HERMES, [*TOOLS, bad], small.special, parallel=True))
    assert caught.value.param == "tools[7].parameters" and "nonsense" in caught.value.message


def test_a_strict_tool_refuses_what_cannot_be_enforced_and_another_leaves_it_out(small: Matching) -> None:
    schema = {"type": "object", "properties": {"a": {"not": {"type": "null"}}}, "required": ["a"]}
    loose = ToolRule("b", schema, "tools[0]")
    grammar = small.grammar(required_calls(syntax.HERMES, [loose], small.special, parallel=False))
    assert small.accepts(grammar, calls(syntax.HERMES, ("b", '{"a": null}')))
    strict = ToolRule("b", schema, "tools[0]", strict=True)
    with pytest.raises(InvalidField, match="not"):
        small.grammar(required_calls(syntax.HERMES, [strict], small.special, parallel=False))


def test_special_tokens_are_cut_out_longest_first() -> None:
    assert split_special("ab<x><xy>", {"<x>": 1, "<x><xy>": 2, "b<": 3}) == ["a", 3, "x><xy>"]
    assert split_special("a<x><xy>", {"<x>": 1, "<x><xy>": 2}) == ["a", 2]
    assert split_special("", {"a": 1}) == []
