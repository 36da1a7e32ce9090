"""JSON arguments of a call that a family does not write as JSON: made argument by argument, typed by the tool's schema.

Text argues for a string: a value becomes anything else only where the schema allows that and the text is its JSON (or
Python's True, False and None). Where nothing is known of an argument, any JSON is taken as such.
"""

from __future__ import annotations

from collections.abc import Mapping
import json
from typing import Any, NoReturn

from samovar.text.formats.emitter import Emitter
from samovar.text.formats.json_text import escaped
from samovar.text.formats.schema_types import ALL_BUT_STRING, NUMBERS, kind_of, types_of

_PYTHON = {"True": "true", "False": "false", "None": "null"}


class MadeArguments:
    """The arguments of one call that has begun. In turns: `key`, any number of `piece`, `close`."""

    def __init__(self, out: Emitter, schema: Mapping[str, Any] | None) -> None:
        self._out = out
        self._schema = schema or {}
        self._opened = False
        self._types = ALL_BUT_STRING
        self._pieces: list[str] = []

    def key(self, name: str) -> None:
        self._out.arguments(("{" if not self._opened else ", ") + json.dumps(name, ensure_ascii=False) + ": ")
        self._opened = True
        properties = self._schema.get("properties")
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        self._types = types_of(schema, self._schema)
        if self._streams:
            self._out.arguments('"')

    @property
    def _streams(self) -> bool:
        return not self._types - {"string"}

    def piece(self, text: str) -> None:
        """Of the value, as it is written."""
        if self._streams:
            self._out.arguments(escaped(text))
        else:
            self._pieces.append(text)

    def close(self, *, complete: bool = True) -> None:
        """Ends the value. One that the output's end cut off is left open."""
        if self._streams:
            self._out.arguments('"' if complete else "")
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        self._out.arguments(_typed(text, self._types) if complete else text)

    def end(self) -> None:
        """After the last value, unless it was cut."""
        self._out.arguments("}" if self._opened else "{}")


def _typed(text: str, types: frozenset[str]) -> str:
    stripped = text.strip()
    stripped = _PYTHON.get(stripped, stripped)
    kind = _kind(stripped)
    if kind in NUMBERS:
        # An integer may be written 3.0, a number 3. Where a string may stand as well, digits may be a postcode.
        fits = "string" not in types and bool(types & NUMBERS)
    else:
        fits = kind != "string" and kind in types
    return stripped if fits else '"' + escaped(text) + '"'


def _kind(text: str) -> str:
    try:
        return kind_of(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return "string"


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
