"""Messages of the Messages API to the inner form's: a turn's tool results become messages of their own.

Nothing that carries no meaning for the model (`cache_control`, signatures, unknown fields) gets through, so it cannot
change a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.anthropic.content import (
    JOINER,
    Block,
    blocks_of,
    name_in,
    only_text,
    result_text,
    string,
    text_of,
    unsupported,
)
from samovar.serve.anthropic.inputs import arguments_of
from samovar.serve.json_input import child

ROLES = ("user", "assistant", "system")
_ERROR_WORDS = ("error", "<tool_use_error>")


@dataclass(slots=True)
class _Calls:
    """Every call seen so far: its place among all, and the tool's name."""

    known: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, id: str, name: str) -> None:
        self.known[id] = (len(self.known), name)

    def place(self, result: dict[str, Any]) -> int:
        """Results that answer no known call come last."""
        return self.known.get(result["tool_call_id"], (len(self.known), ""))[0]


def inner_messages(system: object, messages: object) -> list[dict[str, Any]]:
    """The inner form's messages; `system` first, when there is any. Raises InvalidField with the path of the first
    fault."""
    if not isinstance(messages, list):
        raise InvalidField(f"messages: must be an array of messages; got {shown(messages)}.", param="messages")
    if not messages:
        raise InvalidField("messages: must have at least one message; got an empty array.", param="messages")
    head = text_of(system, "system")
    inner: list[dict[str, Any]] = [{"role": "system", "content": head}] if head else []
    calls = _Calls()
    for at, message in enumerate(messages):
        path = child("messages", at)
        if not isinstance(message, dict):
            raise InvalidField(f"{path}: must be an object; got {shown(message)}.", param=path)
        role, content, where = message.get("role"), message.get("content"), child(path, "content")
        match role:
            case "user":
                inner += _user(content, where, calls)
            case "assistant":
                inner.append(_assistant(content, where, calls))
            case "system":
                inner.append({"role": "system", "content": text_of(content, where)})
            case _:
                wrong = child(path, "role")
                raise InvalidField(f"{wrong}: must be one of {', '.join(ROLES)}; got {shown(role)}.", param=wrong)
    return inner


def _user(content: object, path: str, calls: _Calls) -> list[dict[str, Any]]:
    """Results first, as the API wants them, in the order of their calls: templates that show no ids count on it."""
    results: list[dict[str, Any]] = []
    texts: list[str] = []
    for where, block in blocks_of(content, path):
        match block.get("type"):
            case "text":
                texts.append(only_text(block, where))
            case "tool_result":
                results.append(_result(block, where, calls))
            case _:
                raise unsupported(block, where, "text and tool_result")
    results.sort(key=calls.place)
    if texts or not results:
        results.append({"role": "user", "content": JOINER.join(texts)})
    return results


def _result(block: Block, path: str, calls: _Calls) -> dict[str, Any]:
    id = name_in(block, "tool_use_id", path)
    text = result_text(block.get("content"), child(path, "content"))
    if block.get("is_error") is True and not text.lower().startswith(_ERROR_WORDS):
        # No template has a place for the flag, so the model must read it.
        text = f"Error: {text}" if text else "Error"
    result = {"role": "tool", "tool_call_id": id, "content": text}
    if id in calls.known:
        result["name"] = calls.known[id][1]
    return result


def _assistant(content: object, path: str, calls: _Calls) -> dict[str, Any]:
    """One message, whatever the order of its blocks. Texts are joined without anything between: the blocks of an answer
    were cut where a call or a thought came between."""
    texts: list[str] = []
    thoughts: list[str] = []
    made: list[dict[str, Any]] = []
    for where, block in blocks_of(content, path):
        match block.get("type"):
            case "text":
                texts.append(only_text(block, where))
            case "thinking":
                thoughts.append(string(block, "thinking", where))
            case "redacted_thinking":
                # Only whoever encrypted it can read it.
                continue
            case "tool_use":
                made.append(_call(block, where, calls))
            case _:
                raise unsupported(block, where, "text, thinking, redacted_thinking and tool_use")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if made:
        message["tool_calls"] = made
    return message


def _call(block: Block, path: str, calls: _Calls) -> dict[str, Any]:
    id, name = name_in(block, "id", path), name_in(block, "name", path)
    given = block.get("input")
    if given is not None and not isinstance(given, dict):
        where = child(path, "input")
        raise InvalidField(f"{where}: must be an object; got {shown(given)}.", param=where)
    calls.add(id, name)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments_of(given or {})}}
