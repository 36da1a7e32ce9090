"""Grammars from response_format, structured_outputs and the guided_* fields."""

from __future__ import annotations

import json

import pytest

from samovar.base.errors import InvalidField
from samovar.text.grammar.body import Body, Reasoning
from samovar.text.grammar.limits import MAX_GRAMMAR_BYTES, MAX_OPTIONAL_PROPERTIES
from samovar.text.grammar.schema import json_schema
from samovar.text.grammar.structured import guided, lark, response_format, structured_outputs
from tests.text.grammar.matching import Matching

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["x"],
    "additionalProperties": False,
}
PATCH = """
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Delete File: " filename LF
filename: /(.+)/
%import common.LF
"""


def body(value: Body | None) -> Body:
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("made", "good", "bad"),
    [
        (
            response_format({"type": "json_object"}),
            ['{"a": [1, {}]}', "{}", '{\n  "a": 1\n}'],
            ["[1]", "1", "{} ", "x"],
        ),
        (
            response_format({"type": "json_schema", "json_schema": {"name": "p", "schema": POINT, "strict": True}}),
            ['{"x": 1}', '{"x": -2, "name": "é\\n"}', '{\n  "x": 1\n}'],
            ['{"name": "a"}', '{"x": 1.5}', '{"x": 1, "y": 2}', '{"x":        1}', "{}"],
        ),
        (response_format({"type": "json_schema", "name": "p", "schema": POINT}), ['{"x":1}'], ["{}"]),
        (response_format({"type": "json_schema", "json_schema": {"name": "p"}}), ["{}"], ["[]"]),
        (structured_outputs({"json": json.dumps(POINT)}), ['{"x": 1}'], ["{}"]),
        (structured_outputs({"json": POINT, "disable_any_whitespace": True}), ['{"x":1}'], ['{"x": 1}']),
        (structured_outputs({"json": True}), ["[1]", "null"], ["nul"]),
        (structured_outputs({"json_object": True, "regex": None}), ["{}"], ["1"]),
        (structured_outputs({"regex": r"^[ab]{2}/\d+$"}), ["ab/12"], ["abc/1", "ab/", "ab/1 "]),
        (
            structured_outputs({"choice": ["yes", "yes, sir", 'a"b\\', "é\n"]}),
            ["yes", "yes, sir", 'a"b\\', "é\n"],
            ["ye", ""],
        ),
        (
            structured_outputs({"grammar": PATCH}),
            ["*** Begin Patch\n*** Delete File: a\n*** End Patch\n"],
            ["*** Begin"],
        ),
        (guided({"guided_grammar": 'root ::= "a" num\nnum ::= [0-9]+'}), ["a12"], ["a", "12"]),
        (guided({"guided_json": POINT}), ['{"x": 3}'], ["{}"]),
        (guided({"guided_regex": "a+"}), ["aa"], ["b"]),
        (guided({"guided_choice": ["a", "b"]}), ["b"], ["c"]),
    ],
    ids=lambda value: "" if isinstance(value, list) else None,
)
def test_what_each_field_allows(small: Matching, made: Body | None, good: list[str], bad: list[str]) -> None:
    grammar = small.grammar(body(made))
    thinking = small.grammar(body(made), Reasoning("<think>", "</think>", opened=True))
    marked = small.grammar(body(made), Reasoning("<toolé>", "<|im_start|>", opened=False))
    for text in good:
        assert small.accepts(grammar, text), text
        assert small.accepts(thinking, f"Well {text} </thin\n</think>\n\n{text}"), text
        assert small.accepts(marked, text) and small.accepts(marked, f"<toolé>Hm.<|im_start|>{text}"), text
    for text in bad:
        assert not small.accepts(grammar, text), text
        assert not small.accepts(thinking, f"So</think>{text}!"), text


def test_nothing_asked_for_is_no_grammar() -> None:
    assert response_format({"type": "text"}) is None and response_format({}) is None
    assert structured_outputs({}) is None and structured_outputs({"json_object": False, "regex": None}) is None
    assert guided({"guided_json": None}) is None


@pytest.mark.parametrize(
    ("make", "param"),
    [
        (lambda: response_format({"type": "yaml"}), "response_format.type"),
        (lambda: response_format({"type": "json_schema", "json_schema": 5}), "response_format.json_schema"),
        (
            lambda: response_format({"type": "json_schema", "json_schema": {"schema": []}}),
            "response_format.json_schema.schema",
        ),
        (lambda: response_format({"type": "json_schema", "schema": False}, "text.format"), "text.format.schema"),
        (lambda: structured_outputs({"json": "{"}), "structured_outputs.json"),
        (lambda: structured_outputs({"json": {}, "regex": "a"}), "structured_outputs"),
        (lambda: structured_outputs({"regex": ""}), "structured_outputs.regex"),
        (lambda: structured_outputs({"choice": []}), "structured_outputs.choice"),
        (lambda: structured_outputs({"choice": ["a", 3]}), "structured_outputs.choice[1]"),
        (lambda: structured_outputs({"choice": ["a"] * 20_000}), "structured_outputs.choice"),
        (lambda: structured_outputs({"grammar": 5}), "structured_outputs.grammar"),
        (lambda: structured_outputs({"structural_tag": {}, "json": {}}), "structured_outputs.structural_tag"),
        (lambda: guided({"guided_json": {}, "guided_regex": "a"}), "guided_regex"),
        (lambda: guided({"guided_choice": "a"}), "guided_choice"),
        (lambda: lark("root ::= (((", "format.definition"), "format.definition"),
    ],
)
def test_what_is_malformed_is_named(make: object, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        make()  # type: ignore[operator]
    assert caught.value.param == param and caught.value.message.startswith(f"{param}: ")


NESTED: dict[str, object] = {"type": "string"}
for _ in range(12):
    NESTED = {"type": "object", "properties": {"a": NESTED, "b": NESTED, "c": {"type": "integer"}}}


@pytest.mark.parametrize(
    "made",
    [
        structured_outputs({"json": {"$ref": "#"}}),
        structured_outputs({"json": {"type": "string", "pattern": "(?=a)b"}}),
        structured_outputs({"json": {"type": "array", "uniqueItems": True}}),
        structured_outputs({"json": {"$ref": "https://example.com/schema.json"}}),
        structured_outputs(
            {"json": {"allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in "abc"]} for i in range(9)]}}
        ),
        structured_outputs({"json": {"enum": [f"{i}{'x' * 60}" for i in range(10_000)]}}),
        structured_outputs({"json": NESTED}),
        structured_outputs({"regex": "(a"}),
        structured_outputs({"grammar": "start: nowhere"}),
        structured_outputs({"grammar": "start: a\na: a"}),
        structured_outputs({"grammar": "start: <|no_such_token|>"}),
    ],
)
def test_what_does_not_compile_is_the_clients_fault_and_named(small: Matching, made: Body | None) -> None:
    with pytest.raises(InvalidField) as caught:
        small.grammar(body(made))
    assert caught.value.param in (
        "structured_outputs.json",
        "structured_outputs.regex",
        "structured_outputs.grammar",
        "grammar",
    )
    assert len(caught.value.message) < 400 and "\n" not in caught.value.message


def test_a_grammar_that_is_too_large_is_not_even_compiled(small: Matching) -> None:
    made = structured_outputs({"regex": "a" * MAX_GRAMMAR_BYTES})
    with pytest.raises(InvalidField, match=f"the limit is {MAX_GRAMMAR_BYTES}"):
        small.grammar(body(made))


def test_a_client_cannot_change_our_json_options(small: Matching) -> None:
    schema = {"type": "integer", "not": {}, "x-guidance": {"lenient": True}}
    with pytest.raises(InvalidField):
        small.grammar(body(structured_outputs({"json": schema})))


def test_as_many_optional_properties_as_the_parser_follows(small: Matching) -> None:
    """One more would compile, and end the answer with an error after its first brace."""
    names = [f"p{i}" for i in range(MAX_OPTIONAL_PROPERTIES + 1)]
    properties = {name: {"type": "string"} for name in names}
    schema = {"type": "object", "properties": properties, "required": names[:1], "additionalProperties": False}
    grammar = small.grammar(body(structured_outputs({"json": schema})))
    assert small.accepts(grammar, f'{{"p0": "x", "{names[-1]}": "y"}}')
    with pytest.raises(InvalidField, match=f"at most {MAX_OPTIONAL_PROPERTIES} properties"):
        structured_outputs({"json": {"anyOf": [{"type": "object", "properties": properties}]}})


def test_an_ambiguous_grammar_is_stopped_before_it_is_slow(small: Matching) -> None:
    """By the library's count of work; at its own limits a token's mask of this one takes a third of a second."""
    matcher = small.compiler.matcher('start: a\na: a a | "x" | ')
    x = small.ids("x")
    steps = 0
    while not matcher.is_error() and steps < 400:
        matcher.compute_bitmask()
        matcher.consume_tokens(x)
        steps += 1
    assert matcher.is_error() and 100 < steps < 400


@pytest.mark.parametrize("multiple", [999_983, 10_001, 1e15, 1.00001, 10**30])
def test_a_multiple_that_takes_seconds_to_compile_is_refused(multiple: float) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "number", "multipleOf": multiple}}}
    with pytest.raises(InvalidField, match="multipleOf may be at most 10000"):
        json_schema(schema, strict=True, param="p")


@pytest.mark.parametrize("multiple", [1, 5, 0.01, 0.5, 10_000, 10_000.0])
def test_ordinary_multiples_are_taken(multiple: float) -> None:
    json_schema({"type": "number", "multipleOf": multiple}, strict=True, param="p")


def test_a_surrogate_hidden_in_a_schemas_text_is_refused() -> None:
    with pytest.raises(InvalidField, match="lone surrogate"):
        guided({"guided_json": '{"type": "string", "const": "\\ud800"}'})
