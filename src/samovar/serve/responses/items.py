"""Items of a Responses conversation to the inner form's messages.

What a model generated in one turn comes back as several items (reasoning, message, calls) and is one message again, so
that the history is the text that was generated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
import json
from typing import Any

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.calls import KnownCalls, assistant_message
from samovar.serve.fields import JOINER, name_in, string
from samovar.serve.json_input import child
from samovar.serve.responses.content import Item, parts_of
from samovar.serve.responses.sealed import unseal
from samovar.serve.responses.tools import Toolbox
from samovar.text.formats.custom import wrapped

COMPACTION = "compaction"
COMPACTIONS = (COMPACTION, "compaction_summary", "context_compaction")
"""Names that clients have for it; the first is the API's."""
TRIGGER = "compaction_trigger"
ROLES = ("user", "assistant", "system", "developer")
SUMMARY_HEAD = "The conversation before this point was compacted. This is its summary:\n\n"

_THOUGHTS = {"reasoning_text": "text", "text": "text"}
_SUMMARIES = {"summary_text": "text"}
_OTHER_CALLS = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "tool_search_call": ("tool_search", "arguments"),
}
"""Calls of tools that the API has types for: the tool, and where the arguments are. Made by another model: shown to
ours as calls like any other."""
_RESULTS = {
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "local_shell_call_output": "output",
    "shell_call_output": "output",
    "apply_patch_call_output": "output",
    "tool_search_output": "tools",
}
"""Where a result is."""
_SILENT = ("web_search_call", "additional_tools", "ghost_snapshot")
"""They have nothing for the model to read (`inputs` reads the tools)."""


def inner_messages(items: Iterable[tuple[str, object]], toolbox: Toolbox) -> list[dict[str, Any]]:
    """`items` with their paths, references resolved, no trigger among them. Raises InvalidField with the path of the
    first fault."""
    turns = _Turns(toolbox)
    for path, item in items:
        turns.add(item, path)
    return turns.finish()


def kind_of(item: object, path: str) -> str:
    """The item's type, which a message may leave out."""
    if not isinstance(item, dict):
        raise InvalidField(f"{path}: must be an item (an object); got {shown(item)}.", param=path)
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference"
    if not isinstance(kind, str):
        where = child(path, "type")
        raise InvalidField(f"{where}: must be a string; got {shown(kind)}.", param=where)
    return kind


@dataclass(slots=True)
class _Assistant:
    """A turn of the model in the making."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)


class _Turns:
    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._messages: list[dict[str, Any]] = []
        self._open: _Assistant | None = None
        self._results: list[dict[str, Any]] = []
        self._known = KnownCalls()

    def add(self, item: object, path: str) -> None:
        kind = kind_of(item, path)
        assert isinstance(item, dict)
        read = self._reader(kind)
        if read is not None:
            read(item, path)
        elif kind in _OTHER_CALLS:
            name, key = _OTHER_CALLS[kind]
            self._call(_call_id(item, path), name, _json(item.get(key)))
        elif kind in _RESULTS:
            self._result(item, path, _RESULTS[kind])
        elif kind in COMPACTIONS:
            self._compaction(item, path)
        elif kind not in _SILENT:
            where = child(path, "type")
            raise InvalidField(f"{where}: items of type {shown(kind)} are not supported.", param=where)

    def finish(self) -> list[dict[str, Any]]:
        self._close()
        return self._messages

    def _reader(self, kind: str) -> Callable[[Item, str], None] | None:
        readers: dict[str, Callable[[Item, str], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
        }
        return readers.get(kind)

    def _message(self, item: Item, path: str) -> None:
        role, content, where = item.get("role"), item.get("content"), child(path, "content")
        match role:
            case "assistant":
                self._turn().texts += parts_of(content, where)
            case "user":
                self._say("user", JOINER.join(parts_of(content, where)))
            case "system" | "developer":
                self._say("system", JOINER.join(parts_of(content, where)))
            case _:
                wrong = child(path, "role")
                raise InvalidField(f"{wrong}: must be one of {', '.join(ROLES)}; got {shown(role)}.", param=wrong)

    def _reasoning(self, item: Item, path: str) -> None:
        """Ours as it was generated; of another maker's, what can be read."""
        sealed = unseal("reasoning", item.get("encrypted_content"))
        if sealed is None:
            thoughts = parts_of(item.get("content"), child(path, "content"), _THOUGHTS)
            sealed = "".join(thoughts) or "\n\n".join(parts_of(item.get("summary"), child(path, "summary"), _SUMMARIES))
        self._turn().thoughts.append(sealed)

    def _function_call(self, item: Item, path: str) -> None:
        self._call(name_in(item, "call_id", path), self._inner(item, path), string(item, "arguments", path))

    def _custom_call(self, item: Item, path: str) -> None:
        # What the model wrote: see `conversation.Tool.custom`.
        arguments = wrapped(string(item, "input", path))
        self._call(name_in(item, "call_id", path), self._inner(item, path), arguments)

    def _inner(self, item: Item, path: str) -> str:
        namespace = item.get("namespace")
        if namespace is not None and not isinstance(namespace, str):
            where = child(path, "namespace")
            raise InvalidField(f"{where}: must be a string; got {shown(namespace)}.", param=where)
        return self._toolbox.inner(name_in(item, "name", path), namespace)

    def _call(self, id: str, name: str, arguments: str) -> None:
        self._turn().calls.append(self._known.call(id, name, arguments))

    def _result(self, item: Item, path: str, key: str) -> None:
        id = _call_id(item, path)
        given, where = item.get(key), child(path, key)
        readable = isinstance(given, str) or (key == "output" and _has_texts(given))
        text = JOINER.join(parts_of(given, where)) if readable or given is None else _json(given)
        self._settle()
        self._results.append(self._known.result(id, text))

    def _compaction(self, item: Item, path: str) -> None:
        summary = unseal("summary", item.get("encrypted_content"))
        if summary is None:
            where = child(path, "encrypted_content")
            raise InvalidField(f"{where}: this compaction was not made here and cannot be read.", param=where)
        self._say("user", SUMMARY_HEAD + summary)

    def _say(self, role: str, text: str) -> None:
        self._close()
        self._messages.append({"role": role, "content": text})

    def _turn(self) -> _Assistant:
        if self._open is None:
            self._close()
            self._open = _Assistant()
        return self._open

    def _settle(self) -> None:
        """The model's turn is over."""
        if self._open is not None:
            turn, self._open = self._open, None
            self._messages.append(assistant_message(turn.texts, turn.thoughts, turn.calls))

    def _close(self) -> None:
        self._settle()
        self._messages += self._known.in_order(self._results)
        self._results = []


def _call_id(item: Item, path: str) -> str:
    """Some types have only an id of their own."""
    key = "id" if item.get("call_id") is None and isinstance(item.get("id"), str) else "call_id"
    return name_in(item, key, path)


def _has_texts(output: object) -> bool:
    """Whether it is an array of typed parts, and no data of a tool's own form."""
    return isinstance(output, list) and all(isinstance(part, dict) and "type" in part for part in output)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
