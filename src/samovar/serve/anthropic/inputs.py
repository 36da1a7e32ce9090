"""A tool's input: the model writes text, a client gets an object, and the next turn brings the object back.

The text is passed on one member of the object at a time, as the model wrote it, and only what is valid: what is
written to a client always parses, and a value that was cut off never looks like a whole one. What cannot be passed on
becomes a member of its own, `UNPARSED`, which no tool has: a client that checks inputs refuses the call and tells the
model what it wrote, and the next turn's history has the very text again.
"""

from __future__ import annotations

from collections.abc import Mapping
import json
import math
import re
from typing import Any

UNPARSED = "_unparsed"
MAX_DEPTH = 100
"""Levels inside an input: less than a request body may have (`json_input.MAX_DEPTH`), since it comes back in one."""

_SPACE = " \t\r\n"
_OUTSIDE = re.compile(r'["{}\[\],]')
_INSIDE = re.compile(r'["\\]')


class InputText:
    """The text of one input, in pieces. What it gives, joined, is one JSON object, and does not depend on the cuts."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._members = False
        self._closed = False
        self._broken = False

    def push(self, text: str) -> str:
        """The members that `text` completes."""
        out: list[str] = []
        at = done = 0
        while at < len(text) and not (self._broken or self._closed):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if found is None:
                break
            at = found.end()
            if self._delimits(found[0]):
                self._held.append(text[done : found.start()])
                out.append(self._member())
                done = found.start()
                self._closed = found[0] == "}"
        self._held.append(text[done:])
        return "".join(out)

    def finish(self) -> str:
        """The end of the object."""
        rest = "".join(self._held)
        end = rest.strip(_SPACE)
        if self._members and end == "}":
            return "}"
        if not self._members and (end in ("", "null") or (end[:1] == "{" and end[1:].strip(_SPACE) == "}")):
            return "{}"
        unparsed = f"{json.dumps(UNPARSED)}: {json.dumps(rest, ensure_ascii=False)}}}"
        return f", {unparsed}" if self._members else f"{{{unparsed}"

    def _delimits(self, character: str) -> bool:
        """Whether a member of the object ends before this character. Follows strings and nesting."""
        if self._in_string:
            self._escaped = character == "\\"
            self._in_string = self._escaped
            return False
        match character:
            case '"':
                self._in_string = True
                self._broken = self._depth == 0
            case "{" | "[":
                self._broken = self._depth > MAX_DEPTH or (self._depth == 0 and character == "[")
                self._depth += 1
            case "}" | "]" if self._depth != 1:
                self._depth -= 1
                self._broken = self._depth < 0
            case "]":
                self._broken = True
            case _:
                self._broken = self._depth == 0
                return self._depth == 1
        return False

    def _member(self) -> str:
        """What is held, if it is one good member; it begins with the brace or comma before it."""
        text = "".join(self._held)
        bare = text.lstrip(_SPACE)
        if not self._members and not bare[1:].strip(_SPACE):
            # Nothing yet: an empty object, or a comma that is out of place.
            self._held = [text]
            return ""
        if bare[0] != ("," if self._members else "{") or not _is_member(bare[1:]):
            self._broken = True
            self._held = [text]
            return ""
        self._members = True
        self._held = []
        return text


def arguments_of(given: Mapping[str, Any]) -> str:
    """The text of an input that comes back: what the model wrote, up to spacing."""
    unparsed = given.get(UNPARSED)
    if not isinstance(unparsed, str):
        return json.dumps(given, ensure_ascii=False)
    members = {key: value for key, value in given.items() if key != UNPARSED}
    return (json.dumps(members, ensure_ascii=False)[:-1] if members else "") + unparsed


def _is_member(body: str) -> bool:
    try:
        parsed = json.loads(f"{{{body}}}", parse_constant=_refuse, parse_float=_finite)
        if "\\u" in body:
            # A lone surrogate is JSON, but no text that could be sent back.
            json.dumps(parsed, ensure_ascii=False).encode()
    except ValueError:
        return False
    return len(parsed) == 1


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


def _refuse(constant: str) -> float:
    raise ValueError(constant)
