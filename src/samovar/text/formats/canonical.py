"""Definitions of tools in one order, so that a client that shuffles them between turns keeps its prefix.

Tools by name, keys of a definition in the order people write them, properties by name: what has the same meaning gets
the same text. Lists whose order may mean something (enum, anyOf) stay. Arguments of past calls are not touched here or
anywhere: the model wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
from typing import Any

_FIRST = (
    *("type", "name", "title", "description", "function", "parameters", "strict"),
    *("$ref", "enum", "const", "format", "items", "properties", "required", "additionalProperties"),
)
_RANK = {key: rank for rank, key in enumerate(_FIRST)}
# Their keys are the client's words, not JSON schema's.
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_DATA = ("enum", "const", "default", "examples", "example")


def canonical_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`tools` in the shape of OpenAI's chat completions, copied. Tools of one name are ordered by their text."""
    return sorted((_ordered(tool) for tool in tools), key=_place)


def _place(tool: Mapping[str, Any]) -> tuple[str, str]:
    kind = tool.get("type")
    inner = tool.get(kind) if isinstance(kind, str) else None
    name = inner.get("name") if isinstance(inner, Mapping) else tool.get("name")
    return str(name), json.dumps(tool, ensure_ascii=False)


def _ordered(schema: Mapping[str, Any]) -> dict[str, Any]:
    keys = sorted(schema, key=lambda key: (_RANK.get(key, len(_FIRST)), key))
    return {key: _member(key, schema[key]) for key in keys}


def _member(key: str, value: Any) -> Any:
    if key in _DATA:
        return _by_name(value)
    if key in _MAPS and isinstance(value, Mapping):
        return {name: _schema(value[name]) for name in sorted(value)}
    if key == "required" and isinstance(value, list) and all(isinstance(name, str) for name in value):
        return sorted(value)
    return _schema(value)


def _schema(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _ordered(value)
    return [_schema(item) for item in value] if isinstance(value, list) else value


def _by_name(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _by_name(value[name]) for name in sorted(value)}
    return [_by_name(item) for item in value] if isinstance(value, list) else value
