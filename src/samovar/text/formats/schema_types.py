"""Which JSON types a schema admits, as far as it says: through $ref, anyOf, enum and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NUMBERS = frozenset({"number", "integer"})
ALL_BUT_STRING = NUMBERS | {"boolean", "null", "object", "array"}
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
# Schemas come from clients: one that refers to itself over and over must cost nothing.
_MAX_SCHEMAS = 200


def kind_of(value: Any) -> str:
    """The JSON type of a parsed value."""
    return _KINDS.get(type(value), "null")


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """`root`: the whole schema, where references lead. What says nothing admits ALL_BUT_STRING: a string cannot be
    told from other text then."""
    found: set[str] = set()
    todo: list[Any] = [schema]
    for _ in range(_MAX_SCHEMAS):
        if not todo:
            break
        stated, further = _read(todo.pop(), root)
        found |= stated
        todo += further
    return frozenset(found)


def _read(schema: Any, root: Mapping[str, Any]) -> tuple[frozenset[str], list[Any]]:
    """Types that this schema states, and schemas that go on for it."""
    if not isinstance(schema, Mapping):
        return ALL_BUT_STRING, []
    kind = schema.get("type")
    names = [kind] if isinstance(kind, str) else _listed(kind)
    if names:
        return frozenset(name for name in names if isinstance(name, str)), []
    if isinstance(schema.get("$ref"), str):
        return frozenset(), [_resolve(schema["$ref"], root)]
    values = _listed(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    if values:
        return frozenset(kind_of(value) for value in values), []
    further = [option for word in ("anyOf", "oneOf", "allOf") for option in _listed(schema.get(word))]
    return (frozenset() if further else ALL_BUT_STRING), further


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """`#/$defs/name`; None where it leads nowhere."""
    at: Any = root
    for part in reference.removeprefix("#/").split("/"):
        at = at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, Mapping) else None
    return at
