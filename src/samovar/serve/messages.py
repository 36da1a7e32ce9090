"""Chat messages as clients send them to the form a chat template expects.

Checked by hand, so that an error names the exact place (`messages[2].content[1]`). Everything a template may look at
is kept; what changes is content (flattened to a string) and roles that templates know by another name. What a
particular template cannot take (adjacent messages of one role, tool arguments as text) is settled by `text.messages`.
"""

from __future__ import annotations

from typing import Any

from samovar.base.errors import InvalidField
from samovar.serve.json_input import child
from samovar.serve.validation import shown
from samovar.text.messages import flatten_content

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_KNOWN_AS = {"developer": "system", "function": "tool"}
"""Most templates drop or refuse the role on the left; it means what the one on the right does."""
_TEXT_PARTS = ("text", "input_text", "output_text")


def normalise(messages: object, *, param: str = "messages") -> list[dict[str, Any]]:
    """New message objects, in the given order; raises InvalidField with the path of the first fault."""
    if not isinstance(messages, list):
        raise InvalidField(f"{param}: must be an array of messages; got {shown(messages)}.", param=param)
    if not messages:
        raise InvalidField(f"{param}: must have at least one message; got an empty array.", param=param)
    return [_message(message, child(param, at)) for at, message in enumerate(messages)]


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
    result["content"] = _content(message.get("content"), child(path, "content"))
    if "tool_calls" in result:
        result["tool_calls"] = _tool_calls(result["tool_calls"], child(path, "tool_calls"))
        if not result["tool_calls"]:
            del result["tool_calls"]
    return result


def _content(content: object, path: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise InvalidField(f"{path}: must be a string, null or an array of parts; got {shown(content)}.", param=path)
    parts: list[dict[str, Any]] = []
    for at, part in enumerate(content):
        where = child(path, at)
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
            continue
        if not isinstance(part, dict):
            raise InvalidField(f"{where}: must be an object with a type; got {shown(part)}.", param=where)
        kind = part.get("type")
        if kind not in _TEXT_PARTS if isinstance(kind, str) else True:
            raise InvalidField(f"{where}: content of type {shown(kind)} is not supported, only 'text'.", param=where)
        if not isinstance(part.get("text"), str):
            where = child(where, "text")
            raise InvalidField(f"{where}: must be a string; got {shown(part.get('text'))}.", param=where)
        parts.append({"type": "text", "text": part["text"]})
    return flatten_content(parts)


def _tool_calls(calls: object, path: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise InvalidField(f"{path}: must be an array; got {shown(calls)}.", param=path)
    for at, call in enumerate(calls):
        where = child(path, at)
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidField(f"{where}: must be an object with function.name; got {shown(call)}.", param=where)
    return calls
