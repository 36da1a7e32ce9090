"""`cache_control`, Anthropic's mark, wherever it stands in a body: how long the client hopes that its prompt is kept.

It belongs to the Messages API; gateways and clients send it in chat completions as well. Marks stand on blocks, tools,
messages and the body as a whole. Where they stand does not matter: every full block of a prompt is cached. They never
reach the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from samovar.serve.hint_fields import cache_mark_s
from samovar.serve.json_input import child

_KEY = "cache_control"
Marks = Iterator[tuple[object, str]]
"""Each mark with its path."""


def longest_s(marks: Marks) -> float | None:
    """None when there is no mark. Raises InvalidField with the path of the first mark that is none."""
    return max((cache_mark_s(mark, path) for mark, path in marks), default=None)


def marks_of_body(mark: object) -> Marks:
    if mark is not None:
        yield mark, _KEY


def marks_on(blocks: object, path: str) -> Marks:
    """Those on a list's objects; whatever else `blocks` is has none."""
    for at, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if isinstance(block, dict) and block.get(_KEY) is not None:
            yield block[_KEY], child(child(path, at), _KEY)


def marks_in_messages(messages: Sequence[Mapping[str, Any]], path: str = "messages") -> Marks:
    """On messages, on the blocks of their contents, and on blocks inside those."""
    yield from marks_on(messages, path)
    for at, message in enumerate(messages):
        content = message.get("content")
        inside = child(child(path, at), "content")
        yield from marks_on(content, inside)
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict) and isinstance(block.get("content"), list):
                yield from marks_on(block["content"], child(child(inside, number), "content"))
