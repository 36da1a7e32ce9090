"""Grammars from the fields that ask for structured output: OpenAI's `response_format` and vLLM's `structured_outputs`
with its older `guided_*` names."""

from __future__ import annotations

from collections.abc import Mapping
import json
from typing import Any

from llguidance import LLMatcher, grammar_from

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.text.grammar.body import Body, Part, quoted
from samovar.text.grammar.limits import MAX_CHOICES
from samovar.text.grammar.schema import json_object, json_schema
from samovar.text.surrogates import find_surrogate

GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
"""vLLM's older field names, and what they are called inside `structured_outputs`."""


def response_format(value: Mapping[str, Any], param: str = "response_format") -> Body | None:
    """None for plain text. Takes the chat form, {"type": "json_schema", "json_schema": {"schema", "strict"}}, and the
    flat one of the Responses API. Raises InvalidField."""
    kind = value.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return json_object()
    if kind != "json_schema":
        raise InvalidField(
            f"{param}.type: must be 'text', 'json_object' or 'json_schema'; got {shown(kind)}.", param=f"{param}.type"
        )
    inner, path = value, param
    if "schema" not in value:
        inner, path = value.get("json_schema") or {}, f"{param}.json_schema"
        if not isinstance(inner, Mapping):
            raise InvalidField(f"{path}: must be an object; got {shown(inner)}.", param=path)
    # Without a schema OpenAI's API means any object.
    schema = inner.get("schema")
    if schema is None:
        return json_object()
    return json_schema(schema, strict=inner.get("strict") is True, param=f"{path}.schema")


def structured_outputs(value: Mapping[str, Any], param: str = "structured_outputs") -> Body | None:
    """vLLM's object: exactly one of json, json_object, regex, choice, grammar; None when all are null. Raises
    InvalidField."""
    asked = [name for name in _KINDS if value.get(name) not in (None, False)]
    for name in ("structural_tag", "whitespace_pattern", "disable_additional_properties"):
        if value.get(name) not in (None, False):
            raise InvalidField(f"{param}.{name}: not supported.", param=f"{param}.{name}")
    if not asked:
        return None
    if len(asked) > 1:
        raise InvalidField(f"{param}: only one constraint at a time; got {', '.join(asked)}.", param=param)
    name = asked[0]
    path = f"{param}.{name}"
    if name == "json":
        compact = value.get("disable_any_whitespace") is True
        return json_schema(_parsed(value[name], path), strict=True, param=path, compact=compact)
    return _KINDS[name](value[name], path)


def guided(fields: Mapping[str, Any]) -> Body | None:
    """The older fields of a request body, by name. Raises InvalidField."""
    asked = [name for name in GUIDED if fields.get(name) is not None]
    if not asked:
        return None
    if len(asked) > 1:
        raise InvalidField(f"{asked[1]}: cannot be used together with {asked[0]}.", param=asked[1])
    return _KINDS[GUIDED[asked[0]]](fields[asked[0]], asked[0])


def lark(text: object, param: str) -> Body:
    """An answer in a Lark grammar, or in GBNF: told apart by `::=`."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidField(f"{param}: must be a grammar as text; got {shown(text)}.", param=param)
    try:
        grammar = grammar_from("grammar", text)
    except ValueError as error:
        raise InvalidField(f"{param}: {error}.", param=param) from None
    return Body("@client", named={"client": grammar}, parts=(Part(param, grammar),))


def _json(value: object, param: str) -> Body:
    return json_schema(_parsed(value, param), strict=True, param=param)


def _json_object(value: object, param: str) -> Body:
    if value is not True:
        raise InvalidField(f"{param}: must be true or false; got {shown(value)}.", param=param)
    return json_object()


def _regex(value: object, param: str) -> Body:
    if not isinstance(value, str) or not value:
        raise InvalidField(f"{param}: must be a regular expression as text; got {shown(value)}.", param=param)
    return Body("@client", named={"client": _regex_grammar(value)}, parts=(Part(param, _regex_grammar(value)),))


def _regex_grammar(regex: str) -> str:
    """The library writes a regular expression as a Lark grammar, with what Lark needs escaped."""
    lark_grammar: str = json.loads(LLMatcher.grammar_from_regex(regex))["grammars"][0]["lark_grammar"]
    return lark_grammar


def _choice(value: object, param: str) -> Body:
    if not isinstance(value, list) or not value:
        raise InvalidField(f"{param}: must be an array of strings that is not empty; got {shown(value)}.", param=param)
    if len(value) > MAX_CHOICES:
        raise InvalidField(f"{param}: must have at most {MAX_CHOICES} strings; got {len(value)}.", param=param)
    for at, option in enumerate(value):
        if not isinstance(option, str) or not option:
            path = f"{param}[{at}]"
            raise InvalidField(f"{path}: must be a string that is not empty; got {shown(option)}.", param=path)
    expression = f"({' | '.join(quoted(option) for option in dict.fromkeys(value))})"
    return Body(expression, parts=(Part(param, f"start: {expression}"),))


def _parsed(schema: object, param: str) -> object:
    """vLLM takes a schema as an object or as its text."""
    if not isinstance(schema, str):
        return schema
    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidField(f"{param}: not readable as JSON: {error}.", param=param) from None
    # Escapes inside the text come to light only now.
    if find_surrogate(json.dumps(parsed, ensure_ascii=False)) is not None:
        raise InvalidField(f"{param}: holds a lone surrogate; text must be valid Unicode.", param=param)
    return parsed


_KINDS = {"json": _json, "json_object": _json_object, "regex": _regex, "choice": _choice, "grammar": lark}
