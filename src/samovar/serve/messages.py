"""Chat messages as clients send them, checked and with the roles that templates know.

Checked by hand, so that an error names the exact place (`messages[2].tool_calls[1]`). Everything a template may look
at is kept. Content (text or parts) and what a particular template cannot take (adjacent messages of one role, tool
arguments as text) are settled by `text.messages`.
"""

from __future__ import annotations

from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.json_input import child

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_KNOWN_AS = {"developer": "system", "function": "tool"}
"""Most templates drop or refuse the role on the left; it means what the one on the right does."""
_PLAIN_ROLES = ("system", "user", "assistant", "tool")
_TEXTS = {"role", "content", "name", "tool_call_id", "reasoning_content", "reasoning"}


def normalise(messages: object, *, param: str = "messages") -> list[dict[str, Any]]:
    """Messages in the given order, none of them changed; raises InvalidField with the path of the first fault."""
    if not isinstance(messages, list):
        raise InvalidField(f"{param}: must be an array of messages; got {shown(messages)}.", param=param)
    if not messages:
        raise InvalidField(f"{param}: must have at least one message; got an empty array.", param=param)
    return [
        message if _is_plain(message) else _message(message, child(param, at)) for at, message in enumerate(messages)
    ]


def _is_plain(message: object) -> bool:
    """Most of a conversation by far: texts under names that need no other."""
    return (
        type(message) is dict
        and message.get("role") in _PLAIN_ROLES
        and message.keys() <= _TEXTS
        and all([type(value) is str for value in message.values()])
    )


def _message(message: object, path: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidField(f"{path}: must be an object; got {shown(message)}.", param=path)
    role = message.get("role")
    if role not in ROLES if isinstance(role, str) else True:
        where = child(path, "role")
        raise InvalidField(f"{where}: must be one of {', '.join(ROLES)}; got {shown(role)}.", param=where)
    result = {key: value for key, value in message.items() if value is not None}
    result["role"] = _KNOWN_AS.get(str(role), role)
    for key in ("name", "tool_call_id", "reasoning_content", "reasoning"):
        if not isinstance(result.get(key, ""), str):
            where = child(path, key)
            raise InvalidField(f"{where}: must be a string; got {shown(result[key])}.", param=where)
    if "tool_calls" in result:
        result["tool_calls"] = _tool_calls(result["tool_calls"], child(path, "tool_calls"))
        if not result["tool_calls"]:
            del result["tool_calls"]
    return result


def _tool_calls(calls: object, path: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise InvalidField(f"{path}: must be an array; got {shown(calls)}.", param=path)
    for at, call in enumerate(calls):
        where = child(path, at)
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidField(f"{where}: must be an object with function.name; got {shown(call)}.", param=where)
        if call.get("type", "function") != "function":
            where = child(where, "type")
            raise InvalidField(f"{where}: must be 'function'; got {shown(call['type'])}.", param=where)
    return calls
