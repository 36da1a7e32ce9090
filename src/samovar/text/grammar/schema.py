"""JSON schemas as parts of a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
import json
import math
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.text.grammar.body import Body, Part
from samovar.text.grammar.limits import MAX_OPTIONAL_PROPERTIES, MAX_REMAINDERS

_PRETTY_SPACE = r" |\r?\n[ \t]{0,40}"
"""Between the parts of JSON: a space, or a new line and its indentation. Without a bound a model that has lost its way
can write white space for ever."""


def json_schema(schema: object, *, strict: bool, param: str, compact: bool = False) -> Body:
    """JSON that is valid for `schema`, its properties in the schema's order. `strict`: what cannot be enforced is an
    error when the grammar is compiled; otherwise it is left out. `compact`: without any white space."""
    expression = schema_expression(schema, strict=strict, param=param, compact=compact)
    return Body(expression, parts=(Part(param, f"start: {expression}"),))


def json_object() -> Body:
    return json_schema({"type": "object"}, strict=True, param="response_format")


def object_expression(schema: object, *, strict: bool, param: str) -> str:
    """As `schema_expression`, of an object whatever the schema says: arguments of a call."""
    if isinstance(schema, Mapping) and "type" not in schema:
        schema = {"type": "object", **schema}
    return schema_expression(schema, strict=strict, param=param)


def schema_expression(schema: object, *, strict: bool, param: str, compact: bool = False) -> str:
    """Raises InvalidField when `schema` is none."""
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        what = "matches nothing" if schema is False else f"must be an object; got {shown(schema)}"
        raise InvalidField(f"{param}: a JSON schema {what}.", param=param)
    _check_properties(schema, param)
    options: dict[str, Any] = {"lenient": not strict}
    if compact:
        options["whitespace_flexible"] = False
    else:
        options["whitespace_pattern"] = _PRETTY_SPACE
    return "%json " + json.dumps({**schema, "x-guidance": options}, ensure_ascii=False, separators=(",", ":"))


def _check_properties(schema: Mapping[str, object], param: str) -> None:
    todo: list[object] = [schema]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        if not isinstance(value, Mapping):
            continue
        todo += value.values()
        _check_multiple(value.get("multipleOf"), param)
        properties, required = value.get("properties"), value.get("required")
        if not isinstance(properties, Mapping):
            continue
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        optional = len(properties.keys() - needed)
        if optional > MAX_OPTIONAL_PROPERTIES:
            raise InvalidField(
                f"{param}: an object may have at most {MAX_OPTIONAL_PROPERTIES} properties that are not required; "
                f"one has {optional}.",
                param=param,
            )


def _check_multiple(multiple: object, param: str) -> None:
    """The automaton of a multiple has a state for every remainder."""
    if isinstance(multiple, bool) or not isinstance(multiple, int | float):
        return
    exact = (Decimal(str(multiple)) if math.isfinite(multiple) else Decimal(0)).normalize()
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    remainders = int("".join(map(str, digits))) * 10 ** min(max(exponent, 0), 20)
    if remainders > MAX_REMAINDERS:
        raise InvalidField(
            f"{param}: multipleOf may be at most {MAX_REMAINDERS}, decimals counted as digits; got {multiple!r}.",
            param=param,
        )
