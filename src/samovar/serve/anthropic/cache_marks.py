"""`cache_control` in a Messages body: how long the client hopes that its prompt is kept.

Marks stand on blocks, tools and the body as a whole. Where they stand does not matter: every full block of a prompt is
cached. They never reach the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator

from samovar.serve.anthropic.bodies import MessagesBody
from samovar.serve.hint_fields import cache_mark_s
from samovar.serve.json_input import child

_KEY = "cache_control"


def longest_mark_s(body: MessagesBody) -> float | None:
    """None when there is no mark. Of a body whose conversation was read already (`conversation_input`). Raises
    InvalidField with the path of the first mark that is none."""
    return max((cache_mark_s(mark, path) for mark, path in _marks(body)), default=None)


def _marks(body: MessagesBody) -> Iterator[tuple[object, str]]:
    if body.cache_control is not None:
        yield body.cache_control, _KEY
    yield from _listed(body.tools, "tools")
    yield from _listed(body.system, "system")
    for at, message in enumerate(body.messages):
        content = message.get("content")
        path = child(child("messages", at), "content")
        yield from _listed(content, path)
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block.get("content"), list):
                yield from _listed(block["content"], child(child(path, number), "content"))


def _listed(blocks: object, path: str) -> Iterator[tuple[object, str]]:
    """The marks on a list's objects; whatever else `blocks` is has none."""
    for at, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if isinstance(block, dict) and block.get(_KEY) is not None:
            yield block[_KEY], child(child(path, at), _KEY)
