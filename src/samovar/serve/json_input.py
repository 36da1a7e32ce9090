"""Bytes of a request body to plain objects that are safe to work with.

After this: valid UTF-8 and JSON, an object at the top, no lone surrogates, finite numbers, bounded nesting.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
import json
import math
from typing import Any, Never

import msgspec

from samovar.base.errors import InvalidField, RequestError
from samovar.text.surrogates import find_surrogate

MAX_DEPTH = 128
"""Levels of nesting. Deep enough for any JSON schema; shallow enough for every recursive reader behind."""
MAX_CONTAINERS = 1_000_000
"""Arrays and objects, and what looks like one inside a string: no prompt that fits a context has so many, and millions
of them stop every thread for seconds while they are made."""


def parse_object(raw: bytes) -> dict[str, Any]:
    """Raises RequestError or InvalidField (`param` is the JSON path) for anything a client can get wrong."""
    if raw.count(b"[") + raw.count(b"{") > MAX_CONTAINERS:
        raise RequestError(f"The body has more than {MAX_CONTAINERS:,} opening brackets and braces.")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        # It refuses all that is refused here but deep nesting, in a third of the time, and without saying where.
        return _parse_slowly(raw)
    if not isinstance(value, dict):
        raise RequestError(f"The body must be a JSON object, got {_kind(value)}.")
    _check_depth(value)
    return value


def _parse_slowly(raw: bytes) -> dict[str, Any]:
    mark = len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0
    try:
        # Some clients put a byte order mark first; it is no part of the text.
        text = str(memoryview(raw)[mark:], "utf-8")
    except UnicodeDecodeError as error:
        at = mark + error.start
        raise RequestError(f"The body is not valid UTF-8: byte 0x{raw[at]:02x} at offset {at}.") from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"The body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}."
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise RequestError("The body is not valid JSON: an integer has too many digits.") from None
    if not isinstance(value, dict):
        raise RequestError(f"The body must be a JSON object, got {_kind(value)}.")
    _check(value, may_have_surrogates="\\ud" in text or "\\uD" in text)
    return value


def child(path: str, key: str | int) -> str:
    """`messages` + 0 -> `messages[0]`; `messages[0]` + "content" -> `messages[0].content`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _refuse_constant(name: str) -> Never:
    raise RequestError(f"The body is not valid JSON: {name} is not a JSON number.")


def _too_deep() -> RequestError:
    return RequestError(f"The body is nested too deeply: more than {MAX_DEPTH} levels.")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), type(value).__name__)


def _check_depth(top: dict[str, Any]) -> None:
    level: list[Any] = [top]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for value in level
            for item in (value.values() if type(value) is dict else value)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise _too_deep()


def _check(top: dict[str, Any], *, may_have_surrogates: bool) -> None:
    """Holds no more than the way to where it is: paths are written for errors only."""
    way: list[str | int] = []
    open_ones = [_items(top)]
    while open_ones:
        for key, item in open_ones[-1]:
            if may_have_surrogates and isinstance(key, str):
                _check_text(key, way, key)
            if isinstance(item, (dict, list)):
                if len(open_ones) == MAX_DEPTH:
                    raise _too_deep()
                way.append(key)
                open_ones.append(_items(item))
                break
            if may_have_surrogates and isinstance(item, str):
                _check_text(item, way, key)
            elif isinstance(item, float) and not math.isfinite(item):
                where = _path([*way, key])
                raise InvalidField(f"{where}: the number is out of range; it must be finite.", param=where)
        else:
            open_ones.pop()
            if way:
                way.pop()


def _items(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str | int, Any]]:
    return iter(value.items() if isinstance(value, dict) else enumerate(value))


def _check_text(text: str, way: Sequence[str | int], key: str | int) -> None:
    """`way` and `key`: where the text stands, or the key that it is."""
    at = find_surrogate(text)
    if at is not None:
        path = _path([*way, key])
        raise InvalidField(
            f"{path}: lone surrogate \\u{ord(text[at]):04x} at character {at}; text must be valid Unicode.", param=path
        )


def _path(way: Sequence[str | int]) -> str:
    path = ""
    for key in way:
        path = child(path, key.encode("utf-8", "backslashreplace").decode() if isinstance(key, str) else key)
    return path
