"""Pydantic's findings in our own words: one field, its value, its limit."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.json_input import child

Model = TypeVar("Model", bound=BaseModel)


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
    reasons = [e["msg"] for e in errors if _resolve(value, e["loc"])[0] == path]
    wanted = " or ".join(dict.fromkeys(_reworded(reason) for reason in reasons))
    return InvalidField(f"{path}: must be {wanted}; got {shown(found)}.", param=path)


def _reworded(reason: str) -> str:
    """What is left of "Input should be a valid integer" is "a valid integer"; other wordings stay as they are."""
    _, found, rest = reason.partition(" should be ")
    if found:
        return rest
    _, found, rest = reason.partition(" should have ")
    return f"something with {rest}" if found else reason


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
