"""What a chat template takes and in which form, found out by rendering small conversations with marker words.

Templates do not declare their limits: they raise, print Python's `None`, or silently drop what they do not expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Attempt: TypeAlias = Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None], str | None]
"""Renders messages and tools as they are; None when the template fails on them."""

_FIRST, _SECOND, _OTHER = "Qzfirst", "Qzsecond", "Qzother"
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
    reads_tools: bool = False
    """Definitions of tools show."""


def probe(attempt: Attempt) -> TemplateTraits:
    """At most eleven renderings of a few messages, some milliseconds in all."""
    string_arguments, null_content = _call_form(attempt)
    merged = {role for role, (before, after) in _FRAMES.items() if _needs_merge(attempt, role, before, after)}
    return TemplateTraits(
        merged_roles=frozenset(merged),
        string_arguments=string_arguments,
        null_content_with_calls=null_content,
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


def _call_form(attempt: Attempt) -> tuple[bool, bool]:
    """(arguments as text, content null) of the first form under which a tool call shows properly; (False, False) when
    none does."""
    for null_content in (False, True):
        for as_string in (False, True):
            arguments: Any = '{"qzkey": "qzvalue"}' if as_string else {"qzkey": "qzvalue"}
            # Mistral's templates insist on ids of nine letters and digits.
            call = {
                "id": "qzcall001",
                "type": "function",
                "function": {"name": "qzcalled", "arguments": arguments},
            }
            conversation = [
                _message("user", _OTHER),
                {**_message("assistant", None if null_content else ""), "tool_calls": [call]},
                {**_message("tool", _OTHER), "tool_call_id": "qzcall001", "name": "qzcalled"},
            ]
            text = attempt(conversation, [_TOOL])
            # Escaped quotes: text encoded a second time. Single quotes: Python's spelling of a dict.
            if _shows(text, "qzcalled", "qzvalue") and not (_shows(text, '\\"qzkey') or _shows(text, "'qzkey'")):
                return as_string, null_content
    return False, False


def _shows(text: str | None, *markers: str) -> bool:
    """Case aside: some templates capitalise."""
    return text is not None and all(marker.lower() in text.lower() for marker in markers)
