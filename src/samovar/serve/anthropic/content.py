"""Content of a turn: a string or blocks, taken apart by kind, with the path of the first fault in errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.fields import JOINER, string
from samovar.serve.json_input import child

Block: TypeAlias = Mapping[str, Any]


def blocks_of(content: object, path: str) -> Iterator[tuple[str, Block]]:
    """Each block with its path; a string is one text block, null none."""
    if content is None:
        return
    if isinstance(content, str):
        yield path, {"type": "text", "text": content}
        return
    if not isinstance(content, list):
        raise InvalidField(f"{path}: must be a string or an array of content blocks; got {shown(content)}.", param=path)
    for at, block in enumerate(content):
        where = child(path, at)
        if not isinstance(block, dict):
            raise InvalidField(f"{where}: must be a content block (an object); got {shown(block)}.", param=where)
        yield where, block


def text_of(content: object, path: str) -> str:
    """Content that may only be text."""
    return JOINER.join(only_text(block, where) for where, block in blocks_of(content, path))


def result_text(content: object, path: str) -> str:
    """What a tool gave back."""
    return JOINER.join(_result_part(block, where) for where, block in blocks_of(content, path))


def only_text(block: Block, path: str) -> str:
    if block.get("type") != "text":
        raise unsupported(block, path, "text")
    return string(block, "text", path)


def unsupported(block: Block, path: str, allowed: str) -> InvalidField:
    where = child(path, "type")
    kind = block.get("type")
    return InvalidField(
        f"{where}: content of type {shown(kind)} is not supported here, only {allowed}.",
        param=where,
    )


def _result_part(block: Block, path: str) -> str:
    match block.get("type"):
        case "text":
            return string(block, "text", path)
        case "tool_reference":
            # A client's tool search found this tool. Its definition is among `tools`, all of which are shown.
            return string(block, "tool_name", path)
        case _:
            raise unsupported(block, path, "text and tool_reference")
