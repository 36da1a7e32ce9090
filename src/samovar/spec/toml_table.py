"""Strict reading of TOML: every complaint names the file, the field, its value and what it must be.

A key that nobody read is an error too, so that a misspelt figure is never silently ignored: call `done` at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
import math
import tomllib
from typing import Any

from samovar.base.errors import ConfigError


class TomlTable:
    """One table of a file. `where` is the file's name, `path` the table's place in it, "" at the top."""

    def __init__(self, data: Mapping[str, Any], where: str, path: str = "") -> None:
        self._data = data
        self.where = where
        self._path = path
        self._read: set[str] = set()
        self._inner: list[TomlTable] = []

    @classmethod
    def parse(cls, text: str, where: str) -> TomlTable:
        try:
            return cls(tomllib.loads(text), where)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{where}: not TOML: {error}") from error

    def over(self, base: TomlTable) -> TomlTable:
        """This table's entries, and those of `base` that it does not have; inner tables likewise, lists as a whole."""
        return TomlTable(_merged(base._data, self._data), f"{self.where} (over {base.where})")

    def has(self, name: str) -> bool:
        return name in self._data

    def number(
        self, name: str, default: float | None = None, *, above: float = -math.inf, at_most: float = math.inf
    ) -> float:
        """Finite, more than `above` and at most `at_most`. Without a default the field must be there."""
        value = self._take(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number")
        if not (math.isfinite(value) and value > above):
            raise self.wrong(name, f"a finite number more than {above:g}")
        if value > at_most:
            raise self.wrong(name, f"at most {at_most:g}")
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        return self.number(name, default, above=0.0)

    def duration_s(self, name: str, default: float | None = None) -> float:
        """0 or more seconds; a minute is taken for a mistake in the unit."""
        value = self.number(name, default, at_most=60.0)
        if value < 0:
            raise self.wrong(name, "0 or more seconds")
        return value

    def fraction(self, name: str, default: float | None = None) -> float:
        """More than 0, at most 1."""
        return self.number(name, default, above=0.0, at_most=1.0)

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, "an integer")
        if value < minimum:
            raise self.wrong(name, f"at least {minimum}")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None, *, choices: Collection[str] = ()) -> str:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a string")
        if choices and value not in choices:
            raise self.wrong(name, f"one of {', '.join(sorted(choices))}")
        return value

    def day(self, name: str) -> str:
        """A TOML date, or a string such as "2026-09"; as text."""
        value = self._take(name)
        if isinstance(value, date):
            return value.isoformat()
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a date")
        return value

    def rows(self, name: str, columns: int) -> tuple[tuple[float, ...], ...]:
        """A list of lists of `columns` finite numbers of 0 or more; at least one."""
        value = self._take(name)
        wanted = f"a list of rows of {columns} numbers, each 0 or more"
        if not isinstance(value, list) or not value:
            raise self.wrong(name, wanted)
        for row in value:
            if not isinstance(row, list) or len(row) != columns:
                raise self.wrong(name, wanted)
            for item in row:
                plain = isinstance(item, int | float) and not isinstance(item, bool)
                if not plain or not math.isfinite(item) or item < 0:
                    raise self.wrong(name, wanted)
        return tuple(tuple(float(item) for item in row) for row in value)

    def table(self, name: str) -> TomlTable:
        value = self._take(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "a table")
        return self._inside(value, self._full(name))

    def tables(self, name: str) -> tuple[TomlTable, ...]:
        """An array of tables, at least one."""
        value = self._take(name)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.wrong(name, "an array of tables")
        return tuple(self._inside(item, f"{self._full(name)}[{index}]") for index, item in enumerate(value))

    def done(self) -> None:
        """Raises for a key that nobody asked for, here or in a table read from here."""
        unknown = [key for key in self._data if key not in self._read]
        if unknown:
            known = ", ".join(sorted(self._read)) or "none"
            # TOML puts whatever stands below a [table] into it, which is where a field of the file's top goes astray.
            hint = " (fields of the top level stand before the first [table])" if self._path else ""
            raise ConfigError(f"{self.where}: unknown field {self._full(unknown[0])}; known here: {known}{hint}")
        for inner in self._inner:
            inner.done()

    def wrong(self, name: str, wanted: str) -> ConfigError:
        if name not in self._data:
            return ConfigError(f"{self.where}: field {self._full(name)} is missing; it must be {wanted}")
        shown = repr(self._data[name])
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        return ConfigError(f"{self.where}: field {self._full(name)} is {shown}; it must be {wanted}")

    def _take(self, name: str) -> Any:
        self._read.add(name)
        return self._data.get(name)

    def _full(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _inside(self, data: Mapping[str, Any], path: str) -> TomlTable:
        inner = TomlTable(data, self.where, path)
        self._inner.append(inner)
        return inner


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _merged(under, value) if both and under is not None else value
    return merged
