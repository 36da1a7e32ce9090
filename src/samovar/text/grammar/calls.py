"""Grammars for tool calls, in the spelling of the model's family (`text.formats.syntax`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samovar.text.formats.syntax import CallSyntax
from samovar.text.grammar.body import FREE_TEXT, Body, Part, quoted, spelled, split_special, until
from samovar.text.grammar.limits import MAX_CALLS, MAX_NUMBERED_CALLS
from samovar.text.grammar.schema import object_expression

_ANY_OBJECT = {"type": "object"}
_RAW_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""Of a custom tool inside a JSON format. Its own grammar cannot be enforced there: what it describes is the text, and
the model writes the text's JSON escapes."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """What a call of one tool may look like."""

    name: str
    parameters: Mapping[str, object] | None
    """JSON schema; None for a tool without parameters."""
    param: str
    """Path of the request field that holds the schema."""
    strict: bool = False
    custom: bool = False
    """Takes raw text instead of an object; `parameters` counts for nothing then."""


def required_calls(
    syntax: CallSyntax, tools: Sequence[ToolRule], special: Mapping[str, int], *, parallel: bool
) -> Body:
    """One call of these tools and nothing else; up to `MAX_CALLS` (numbered ones: `MAX_NUMBERED_CALLS`) when
    `parallel`. For a named tool choice `tools` is that one. Arguments follow all schemas, of strict tools or not."""
    calls, rules, parts = _calls(syntax, tools, special, parallel=parallel, all_schemas=True)
    return Body(_sequence(spelled(syntax.section_begin, special), calls), rules, parts=parts)


def free_with_calls(
    syntax: CallSyntax, tools: Sequence[ToolRule], special: Mapping[str, int], *, parallel: bool
) -> Body:
    """Any text; but once a call begins it is one of these tools' to its end. Arguments follow the schemas of strict
    tools and are any object for others. Where no text marks a call (`trigger` is empty), a text that begins with a
    brace is calls to its end."""
    calls, rules, parts = _calls(syntax, tools, special, parallel=parallel, all_schemas=False)
    if not syntax.trigger:
        whole = _sequence(spelled(syntax.section_begin, special), calls)
        rules += ("CALL_FREE: /[ \\t\\r\\n]*[^{ \\t\\r\\n](.|\\n)*/", f"calls: {whole}")
        return Body("(CALL_FREE? | calls)", rules, parts=parts, takes_space=True)
    opening = syntax.section_begin + syntax.begin
    assert opening.startswith(syntax.trigger), f"{syntax.trigger!r} does not begin a call"
    before, more = until(syntax.trigger, special, "call_trigger")
    # A separator only joins calls inside a section; elsewhere the next trigger follows in free text.
    inner = calls if syntax.section_begin else ("first_call",)
    in_section = syntax.section_begin[len(syntax.trigger) :] if syntax.section_begin else ""
    if syntax.section_begin:
        assert syntax.section_begin.startswith(syntax.trigger), f"{syntax.trigger!r} does not begin a section"
    else:
        rules += (f"first_call: {_after_trigger(syntax, special)}",)
    whole = _sequence(spelled(in_section, special), inner)
    rules += (*more, f"call_after: {before} {whole}", f"CALL_FREE: {FREE_TEXT}")
    expression = "call_after* CALL_FREE?" if parallel else "(call_after | CALL_FREE)?"
    return Body(f"({expression})", rules, parts=parts, takes_space=True)


def _after_trigger(syntax: CallSyntax, special: Mapping[str, int]) -> str:
    """A first call without the trigger that was already written."""
    rest = syntax.begin[len(syntax.trigger) :]
    return _sequence(spelled(rest, special), ("named_call_0", spelled(syntax.end, special)))


def _calls(
    syntax: CallSyntax,
    tools: Sequence[ToolRule],
    special: Mapping[str, int],
    *,
    parallel: bool,
    all_schemas: bool,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Part, ...]]:
    """The expressions of a section's calls with its end, the rules they stand on, and what clients wrote of them."""
    rules: list[str] = []
    parts: list[Part] = []
    distinct = {tool.name: tool for tool in reversed(tools)}
    assert distinct, "a grammar of calls needs a tool"
    names = [(name, f"arguments_{at}") for at, name in enumerate(distinct)]
    for (_, rule), tool in zip(names, distinct.values(), strict=True):
        expression = _arguments(tool, enforced=tool.strict or all_schemas)
        rules.append(f"{rule}: {expression}")
        parts.append(Part(tool.param, f"start: {expression}"))
    most = MAX_NUMBERED_CALLS if syntax.numbered else MAX_CALLS
    count = most if parallel else 1
    # Each call has a rule of its own only where its number is part of it.
    for number in range(count if syntax.numbered else 1):
        label = f"{syntax.numbered}{number}" if syntax.numbered else ""
        options = [f"{_name(name + label, syntax.middle, special)} {arguments}" for name, arguments in names]
        rules.append(f"named_call_{number}: {' | '.join(options)}")
        begin, end = spelled(syntax.begin, special), spelled(syntax.end, special)
        rules.append(f"call_{number}: {_sequence(begin, (f'named_call_{number}', end))}")
    between = spelled(syntax.separator, special)
    if count == 1:
        series = "call_0"
    elif syntax.numbered:
        rules += [f"more_{number}: {_follow(between, number, count)}" for number in range(1, count)]
        series = "call_0 more_1?"
    else:
        series = f"call_0 ({between} call_0){{0,{count - 1}}}"
    return (series, spelled(syntax.section_end, special)), tuple(rules), tuple(parts)


def _follow(between: str, number: int, count: int) -> str:
    """Call `number` of a numbered series, and maybe those after it."""
    call = _sequence(between, (f"call_{number}",))
    return call if number + 1 == count else f"{call} more_{number + 1}?"


def _name(name: str, middle: str, special: Mapping[str, int]) -> str:
    """A name and what follows it. As one piece of text where possible: then no name is the beginning of another."""
    pieces = split_special(middle, special)
    if pieces and isinstance(pieces[0], str):
        first, rest = quoted(name + pieces[0]), middle[len(pieces[0]) :]
        return _sequence(first, (spelled(rest, special),))
    return _sequence(quoted(name), (spelled(middle, special),))


def _arguments(tool: ToolRule, *, enforced: bool) -> str:
    if tool.custom:
        return object_expression(_RAW_INPUT, strict=True, param=tool.param)
    if not enforced:
        return object_expression(_ANY_OBJECT, strict=True, param=tool.param)
    if tool.parameters is None:
        return object_expression({**_ANY_OBJECT, "additionalProperties": False}, strict=True, param=tool.param)
    return object_expression(tool.parameters, strict=tool.strict, param=tool.param)


def _sequence(first: str, rest: Sequence[str]) -> str:
    return " ".join(piece for piece in (first, *rest) if piece)
