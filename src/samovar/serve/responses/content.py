"""Content of an item: a string or parts, taken apart by kind, with the path of the first fault in errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from samovar.base.errors import InvalidField
from samovar.base.shown import shown
from samovar.serve.fields import string
from samovar.serve.json_input import child

Item: TypeAlias = Mapping[str, Any]

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""By type, where a part has its text."""


def parts_of(content: object, path: str, texts: Mapping[str, str] = _TEXTS) -> list[str]:
    """The text of each part; a string is one, null none."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidField(f"{path}: must be a string or an array of parts; got {shown(content)}.", param=path)
    return [_part(part, child(path, at), texts) for at, part in enumerate(content)]


def _part(part: object, path: str, texts: Mapping[str, str]) -> str:
    if not isinstance(part, dict):
        raise InvalidField(f"{path}: must be an object with a type; got {shown(part)}.", param=path)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in texts:
        where = child(path, "type")
        known = ", ".join(texts)
        raise InvalidField(f"{where}: content of type {shown(kind)} is not supported, only {known}.", param=where)
    return string(part, texts[kind], path)
