"""Fields of a body that hold hints, as its document describes them. What is in them is read by hand (`hint_envelope`,
`hint_fields`), so that an error names the exact place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

MAX_ACTIONS = 32
"""In one envelope."""
MAX_NAME_CHARACTERS = 64
"""Of an action."""
MAX_ID_CHARACTERS = 512
"""Of a message and of an action."""
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

_SECONDS = {"type": "number", "minimum": 0}


def _action(name: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": ["action", *fields], "properties": {"action": {"enum": [name]}, **fields}}


_ENVELOPE = {
    "type": "object",
    "required": ["actions"],
    "properties": {
        "protocol_version": {"enum": [1]},
        "message_id": {"type": ["string", "null"], "maxLength": MAX_ID_CHARACTERS},
        "actions": {
            "type": "array",
            "maxItems": MAX_ACTIONS,
            "items": {
                "anyOf": [
                    _action("retain", ttl_s=_SECONDS),
                    _action("resume_in", seconds=_SECONDS),
                    _action("release"),
                    _action("demote"),
                    _action("prefetch"),
                    _action("priority", value={"type": "integer", "minimum": INT32_MIN, "maximum": INT32_MAX}),
                    _action("children", count={"type": "integer", "minimum": 0, "maximum": INT32_MAX}),
                ]
            },
        },
    },
}
_MARK = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["ephemeral"]}, "ttl": {"enum": [None, "5m", "1h"]}},
}
_NVEXT = {
    "type": "object",
    "properties": {
        "agent_hints": {
            "type": "object",
            "properties": {
                "priority": {"type": "integer", "minimum": INT32_MIN, "maximum": INT32_MAX},
                "speculative_prefill": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
        "cache_control": _MARK,
    },
}

KvHints = Annotated[dict[str, Any], WithJsonSchema(_ENVELOPE)]
NvExt = Annotated[dict[str, Any], WithJsonSchema(_NVEXT)]
CacheMark = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "null"}, _MARK]})]
CacheRetention = Literal["in_memory", "in-memory", "24h"]
"""The second is what older clients write."""
