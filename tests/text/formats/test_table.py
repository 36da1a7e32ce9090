"""The table of formats: what a template tells, and that each family reads its own spelling."""

from __future__ import annotations

import pytest

from samovar.text.answer import Answer, Call
from samovar.text.formats.table import FORMATS, detect
from tests.text.formats.grammar import spelt
from tests.text.formats.parsing import parse

_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ('<tool_call>\n{"name": "{{ call.name }}", "arguments": {{ call.arguments }}}\n</tool_call>', "hermes"),
        ("<tool_call>\n<function={{ call.name }}>\n<parameter={{ key }}>", "qwen3_coder"),
        ("<tool_call>{{ call.name }}\n<arg_key>{{ k }}</arg_key>", "glm45"),
        ("[TOOL_CALLS] [{{ calls }}]", "mistral"),
        ("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral_v11"),
        ("<｜tool▁call▁begin｜>{{ type }}<｜tool▁sep｜>{{ name }}\\n```json\\n", "deepseek_v3"),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>{{ arguments }}", "deepseek_v31"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>", "kimi_k2"),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', "llama3_json"),
        ("<|tool_call_start|>[{{ calls }}]<|tool_call_end|>", "pythonic"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        ("something else", None),
    ],
)
def test_a_template_tells_its_format(template: str, name: str | None) -> None:
    assert detect(_TOOLS + template) == name
    assert detect(template) is None, "a template that reads no tools has no format"


def test_names_are_those_people_know() -> None:
    known = ("hermes", "llama3_json", "mistral", "deepseek_v3", "deepseek_v31", "kimi_k2", "glm45", "qwen3_coder")
    assert {*known, "qwen3_xml", "pythonic"} <= set(FORMATS)
    assert all(FORMATS[format.name] is format for format in FORMATS.values())


@pytest.mark.parametrize("name", [name for name, format in FORMATS.items() if format.syntax is not None])
def test_each_family_reads_its_own_spelling(name: str) -> None:
    syntax = FORMATS[name].syntax
    assert syntax is not None
    written = (("f", '{"a": "}{", "b": [1]}'), ("g", "{}"), ("f", "{}"))
    answer = parse(name, spelt(syntax, written))
    ids = [f"functions.{call}:{at}" if syntax.numbered else None for at, (call, _) in enumerate(written)]
    assert answer == Answer("", "", tuple(Call(*call, id=i) for call, i in zip(written, ids, strict=True)))
    assert parse(name, spelt(syntax, written[:1])).calls == answer.calls[:1]
    assert (syntax.section_begin + syntax.begin).startswith(syntax.trigger)


def test_markers_are_what_the_spelling_is_made_of() -> None:
    for format in FORMATS.values():
        if format.syntax is not None and format.syntax.trigger:
            assert format.syntax.trigger in format.markers
