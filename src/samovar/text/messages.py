"""Chat messages in the form a template can take: content as a string, adjacent messages merged, tool arguments as the
template reads them. Works on plain dicts in OpenAI's shape and never changes its input."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import json
from typing import Any, TypeAlias

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.text.template_traits import TemplateTraits

Message: TypeAlias = Mapping[str, Any]

_TEXT_PARTS = ("text", "input_text", "output_text")
_JOINED = ("content", "reasoning_content", "reasoning")


def flatten_content(content: Any, path: str) -> str:
    """A message's `content` as one string: null and [] are "", text parts are joined by a newline.

    Raises InvalidField for what is no text, with the place as `param`; `path` is where the content itself stands
    (`messages[2].content`).
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidField(f"{path}: must be a string, null or an array of parts; got {shown(content)}.", param=path)
    return "\n".join(_part_text(part, f"{path}[{at}]") for at, part in enumerate(content))


def _part_text(part: Any, path: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidField(f"{path}: must be an object with a type; got {shown(part)}.", param=path)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise InvalidField(f"{path}: content of type {shown(kind)} is not supported, only 'text'.", param=path)
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidField(f"{path}.text: must be a string; got {shown(text)}.", param=f"{path}.text")
    return text


def merge_adjacent(
    messages: Sequence[Message], roles: Collection[str] = ("system", "user", "assistant")
) -> list[Message]:
    """Adjacent messages of one role of `roles` as one: texts as paragraphs (a blank line between), tool calls in
    order. Of other fields the first message's stay. Contents must be strings already."""
    merged: list[Message] = []
    for message in messages:
        if merged and message.get("role") in roles and merged[-1].get("role") == message.get("role"):
            merged[-1] = _joined(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _joined(first: Message, second: Message) -> Message:
    both = {**second, **first}
    for key in _JOINED:
        texts = [text for text in (first.get(key), second.get(key)) if text]
        if texts:
            both[key] = "\n\n".join(texts)
    calls = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    if calls:
        both["tool_calls"] = calls
    return both


def prepare(messages: Sequence[Message], traits: TemplateTraits) -> list[Message]:
    """`messages` as a template with these traits needs them. Raises InvalidField for content that is no text."""
    flat: list[Message] = [
        {**message, "content": flatten_content(message.get("content"), f"messages[{at}].content")}
        for at, message in enumerate(messages)
    ]
    merged = merge_adjacent(flat, traits.merged_roles)
    return [ready for message in merged for ready in _with_calls(message, traits)]


def _with_calls(message: Message, traits: TemplateTraits) -> list[Message]:
    # Templates ask whether the key is defined, not only whether it is empty.
    without = {key: value for key, value in message.items() if key != "tool_calls"}
    calls = message.get("tool_calls")
    if not calls:
        return [without]
    ready = {**message, "tool_calls": [_with_arguments(call, traits.string_arguments) for call in calls]}
    if not traits.null_content_with_calls:
        return [ready]
    # Such a template would drop either the text or the calls of one message: it gets two.
    before = [without] if message["content"] else []
    return [*before, {"role": message["role"], "content": None, "tool_calls": ready["tool_calls"]}]


def _with_arguments(call: Any, as_string: bool) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"), as_string)}}


def _arguments(arguments: Any, as_string: bool) -> Any:
    """Clients send arguments as JSON text, most templates want the object. Text that is no object stays as it is: the
    model wrote it, and its history must remain usable."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}
    if as_string:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments
