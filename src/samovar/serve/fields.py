"""Members of a body's objects that are checked by hand, so that an error names the exact place (`path` and the key)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.json_input import child

JOINER = "\n"
"""Between the parts of a message, a system or a result: what `text.messages` puts between parts of a chat message, so
that one conversation has one prompt over every API. A part on lines of its own can be found by line."""


def string(holder: Mapping[str, Any], key: str, path: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str):
        where = child(path, key)
        raise InvalidField(f"{where}: must be a string; got {shown(value)}.", param=where)
    return value


def name_in(holder: Mapping[str, Any], key: str, path: str) -> str:
    """A string that is not empty."""
    value = holder.get(key)
    if not isinstance(value, str) or not value:
        where = child(path, key)
        raise InvalidField(f"{where}: must be a string that is not empty; got {shown(value)}.", param=where)
    return value


def schema_in(holder: Mapping[str, Any], key: str, path: str, default: Any = None) -> Mapping[str, Any]:
    """A JSON schema; `default` where there is none."""
    value = holder.get(key)
    value = default if value is None else value
    if not isinstance(value, dict):
        where = child(path, key)
        raise InvalidField(f"{where}: must be an object (a JSON schema); got {shown(value)}.", param=where)
    return value


def text_or_nothing(value: object) -> str:
    """For what is only told to the model: a text, or nothing at all."""
    return value if isinstance(value, str) else ""
