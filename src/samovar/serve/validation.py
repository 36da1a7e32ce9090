"""Pydantic's findings in our own words: one field, its value, its limit."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.bodies import VISIBLE
from samovar.serve.json_input import child

Model = TypeVar("Model", bound=BaseModel)

_KINDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing_size": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "finite_number": "a finite number",
}
"""By pydantic's name for what is wrong."""
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_SIZES = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "element"),
    "too_long": ("at most", "max_length", "element"),
}
_PATTERNS = {VISIBLE: "printable ASCII characters without spaces"}


def validate(model: type[Model], value: dict[str, Any]) -> Model:
    """Raises InvalidField for the first field that does not fit, with `param` its JSON path."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _explain(value, error.errors(include_url=False)) from None


def _explain(value: dict[str, Any], errors: list[ErrorDetails]) -> InvalidField:
    path, found = _resolve(value, errors[0]["loc"])
    if errors[0]["type"] == "missing":
        missing = child(path, str(errors[0]["loc"][-1]))
        return InvalidField(f"{missing}: this field is required.", param=missing)
    size = _SIZES.get(errors[0]["type"])
    if size is not None and isinstance(found, (str, list, dict)):
        bound, limit, unit = size
        wanted = errors[0]["ctx"][limit]
        units = unit if wanted == 1 else f"{unit}s"
        return InvalidField(f"{path}: must have {bound} {wanted} {units}; got {len(found)}.", param=path)
    # Several for the members of a union, of which each says what it would take.
    reasons = [_wanted(error) for error in errors if _resolve(value, error["loc"])[0] == path]
    return InvalidField(f"{path}: must be {' or '.join(dict.fromkeys(reasons))}; got {shown(found)}.", param=path)


def _wanted(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in _BOUNDS:
        bound, name = _BOUNDS[kind]
        limit = context[name]
        return f"{bound} {limit:.10g}" if isinstance(limit, float) else f"{bound} {limit}"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS[context["pattern"]]
    return _KINDS[kind]


def _resolve(value: object, loc: tuple[int | str, ...]) -> tuple[str, object]:
    """The path that exists in the input: pydantic's own names for members of a union are left out."""
    path = ""
    for key in loc:
        in_dict = isinstance(value, dict) and key in value
        if not in_dict and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            continue
        value = value[key]  # type: ignore[index]
        path = child(path, key)
    return path, value
