"""Turns of the model and results of its calls, put together from the pieces in which an API sends them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class KnownCalls:
    """Every call of a conversation so far: its place among all, and its tool."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def call(self, id: str, name: str, arguments: str) -> dict[str, Any]:
        """A new one, as a member of `tool_calls`."""
        self._known[id] = (len(self._known), name)
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def result(self, id: str, text: str) -> dict[str, Any]:
        """The message with a call's result."""
        result = {"role": "tool", "tool_call_id": id, "content": text}
        if id in self._known:
            result["name"] = self._known[id][1]
        return result

    def in_order(self, results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Results in the order of their calls, since templates that show no ids count on it; those that answer no
        known call come last."""
        last = len(self._known), ""
        return sorted(results, key=lambda result: self._known.get(result["tool_call_id"], last)[0])


def assistant_message(texts: list[str], thoughts: list[str], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """One turn of the model. Its texts are joined without anything between: they were parted where a call or a thought
    came between."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message
