"""Chat messages in the form a template can take: content as a string, system messages where it takes them, adjacent
messages merged, tool calls as it reads them. Works on plain dicts in OpenAI's shape and never changes its input."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
import json
import re
import string
from typing import Any, TypeAlias

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.text.template_traits import TemplateTraits

Message: TypeAlias = Mapping[str, Any]

_TEXT_PARTS = ("text", "input_text", "output_text")
_JOINED = ("content", "reasoning_content", "reasoning")
_LETTERS = string.ascii_letters + string.digits
_SHORT = re.compile("[A-Za-z0-9]{9}")


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
    messages: Sequence[Message],
    roles: Collection[str] = ("system", "user", "assistant"),
    *,
    into_tools: bool = False,
) -> list[Message]:
    """Adjacent messages of one role of `roles` as one: texts as paragraphs (a blank line between), tool calls in
    order. Of other fields the first message's stay. `into_tools`: a user's message right after a tool's result joins
    that as well. Contents must be strings already."""
    merged: list[Message] = []
    for message in messages:
        before, role = merged[-1].get("role") if merged else None, message.get("role")
        if (before == role and role in roles) or (into_tools and before == "tool" and role == "user"):
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


def flatten(messages: Sequence[Message], begin: int = 0) -> list[Message]:
    """`messages` from `begin` on with every content as a string. Raises InvalidField for content that is no text."""
    return [
        message
        if isinstance(message.get("content"), str)
        else {**message, "content": flatten_content(message.get("content"), f"messages[{at}].content")}
        for at, message in enumerate(messages[begin:], begin)
    ]


def arrange(messages: Sequence[Message], traits: TemplateTraits) -> list[Message]:
    """Flat `messages` as a template with these traits needs them."""
    placed = _place_systems(messages, traits)
    merged = merge_adjacent(placed, traits.merged_roles, into_tools=not traits.user_after_tool)
    return [ready for message in merged for ready in _with_calls(_known_as(message, traits), traits)]


def prepare(messages: Sequence[Message], traits: TemplateTraits) -> list[Message]:
    """`messages` as a template with these traits needs them. Raises InvalidField for content that is no text."""
    return arrange(flatten(messages), traits)


def _place_systems(messages: Sequence[Message], traits: TemplateTraits) -> list[Message]:
    """System messages that the template would move, drop or refuse stay where they are, as the user's. The same
    everywhere but at the head, at the end too: what is last now has successors in the next turn."""
    if traits.system == "anywhere":
        return list(messages)
    head = 0
    if traits.system == "head":
        head = next((at for at, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    return [
        {**message, "role": "user"} if at >= head and message.get("role") == "system" else message
        for at, message in enumerate(messages)
    ]


def _known_as(message: Message, traits: TemplateTraits) -> Message:
    """Reasoning under the name that templates read, ids of calls in the form that this one takes."""
    if message.get("reasoning") and "reasoning_content" not in message:
        message = {**message, "reasoning_content": message["reasoning"]}
    if traits.short_call_ids and isinstance(message.get("tool_call_id"), str):
        message = {**message, "tool_call_id": _short_id(message["tool_call_id"])}
    return message


def _short_id(id: str) -> str:
    """Nine letters and digits, the same for the same id."""
    if _SHORT.fullmatch(id):
        return id
    number = int.from_bytes(sha256(id.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    letters = []
    for _ in range(9):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def _with_calls(message: Message, traits: TemplateTraits) -> list[Message]:
    # Templates ask whether the key is defined, not only whether it is empty.
    without = {key: value for key, value in message.items() if key != "tool_calls"}
    calls = message.get("tool_calls")
    if not calls:
        return [without]
    ready = {**message, "tool_calls": [_ready_call(call, traits) for call in calls]}
    if not traits.null_content_with_calls:
        return [ready]
    # Such a template would drop either the text or the calls of one message: it gets two.
    before = [without] if message["content"] else []
    return [*before, {"role": message["role"], "content": None, "tool_calls": ready["tool_calls"]}]


def _ready_call(call: Any, traits: TemplateTraits) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = _arguments(function.get("arguments"), traits.string_arguments)
    ready = {**call, "function": {**function, "arguments": arguments}}
    if traits.short_call_ids and isinstance(call.get("id"), str):
        ready["id"] = _short_id(call["id"])
    return ready


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
