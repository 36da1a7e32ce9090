"""What a chat template takes and in which form, found out by rendering small conversations with marker words.

Templates do not declare their limits: they raise, print Python's `None`, or silently drop what they do not expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

Attempt: TypeAlias = Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None], str | None]
"""Renders messages and tools as they are; None when the template fails on them."""

_FIRST, _SECOND, _THIRD, _FOURTH, _OTHER = "Qzfirst", "Qzsecond", "Qzthird", "Qzfourth", "Qzother"
_LONG_ID = "call_qz0123456789abcdef"
_TOOL = {
    "type": "function",
    "function": {
        "name": "qzdefined",
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {"qzkey": {"type": "string"}}, "required": ["qzkey"]},
    },
}


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """All but the last say what `messages.prepare` must do."""

    merged_roles: frozenset[str] = frozenset()
    """Roles of which two adjacent messages fail or lose text, while one does not."""
    string_arguments: bool = False
    """Arguments of a tool call are wanted as JSON text, not as an object."""
    null_content_with_calls: bool = False
    """Tool calls show only when the message's content is null."""
    system: Literal["anywhere", "head", "nowhere"] = "anywhere"
    """Where a system message shows, and stays where it is."""
    user_after_tool: bool = True
    """A user's message may follow a tool's result."""
    short_call_ids: bool = False
    """Ids of tool calls must have nine letters and digits."""
    reads_tools: bool = False
    """Definitions of tools show."""


def probe(attempt: Attempt) -> TemplateTraits:
    """At most seventeen renderings of a few messages, some milliseconds in all."""
    form = _call_form(attempt)
    string_arguments, null_content = form or (False, False)
    with_calls = partial(_calling, string_arguments, null_content)
    merged = {role for role, (before, after) in _FRAMES.items() if _needs_merge(attempt, role, before, after)}
    return TemplateTraits(
        merged_roles=frozenset(merged),
        string_arguments=string_arguments,
        null_content_with_calls=null_content,
        system=_system(attempt),
        user_after_tool=form is None or _shows(attempt([*with_calls(), _message("user", _FIRST)], [_TOOL]), _FIRST),
        short_call_ids=form is not None and not _shows(attempt(with_calls(id=_LONG_ID), [_TOOL]), "qzcalled"),
        reads_tools=_shows(attempt([_message("user", _FIRST)], [_TOOL]), "qzdefined"),
    )


def _message(role: str, content: str | None) -> dict[str, Any]:
    return {"role": role, "content": content}


_FRAMES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "system": ([], [_message("user", _OTHER)]),
    "user": ([], []),
    "assistant": ([_message("user", _OTHER)], [_message("user", _OTHER)]),
}


def _needs_merge(attempt: Attempt, role: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    first, second = _message(role, _FIRST), _message(role, _SECOND)
    single = attempt([*before, first, *after], None)
    double = attempt([*before, first, second, *after], None)
    return _shows(single, _FIRST) and not _shows(double, _FIRST, _SECOND)


def _system(attempt: Attempt) -> Literal["anywhere", "head", "nowhere"]:
    head = [_message("system", _SECOND), _message("user", _FIRST)]
    if not _shows(attempt(head[1:], None), _FIRST):
        return "anywhere"  # it shows nothing anyone says
    if not _shows(attempt(head, None), _FIRST, _SECOND):
        return "nowhere"
    middle = [_message("assistant", _OTHER), _message("system", _THIRD), _message("user", _FOURTH)]
    in_place = all(
        _in_order(attempt([*begin, *middle], None), *shown, _OTHER, _THIRD, _FOURTH)
        for begin, shown in ((head, (_SECOND, _FIRST)), (head[1:], (_FIRST,)))
    )
    return "anywhere" if in_place else "head"


def _calling(as_string: bool, null_content: bool, id: str = "qzcall001") -> list[dict[str, Any]]:
    """A question, a call and its result. Mistral's templates insist on ids of nine letters and digits."""
    arguments: Any = '{"qzkey": "qzvalue"}' if as_string else {"qzkey": "qzvalue"}
    call = {"id": id, "type": "function", "function": {"name": "qzcalled", "arguments": arguments}}
    return [
        _message("user", _OTHER),
        {**_message("assistant", None if null_content else ""), "tool_calls": [call]},
        {**_message("tool", _OTHER), "tool_call_id": id, "name": "qzcalled"},
    ]


def _call_form(attempt: Attempt) -> tuple[bool, bool] | None:
    """(arguments as text, content null) of the first form under which a tool call shows properly; None when none
    does."""
    for null_content in (False, True):
        for as_string in (False, True):
            text = attempt(_calling(as_string, null_content), [_TOOL])
            # Escaped quotes: text encoded a second time. Single quotes: Python's spelling of a dict.
            if _shows(text, "qzcalled", "qzvalue") and not (_shows(text, '\\"qzkey') or _shows(text, "'qzkey'")):
                return as_string, null_content
    return None


def _in_order(text: str | None, *markers: str) -> bool:
    if text is None:
        return False
    places = [text.lower().find(marker.lower()) for marker in markers]
    return -1 not in places and places == sorted(places)


def _shows(text: str | None, *markers: str) -> bool:
    """Case aside: some templates capitalise."""
    return text is not None and all(marker.lower() in text.lower() for marker in markers)
