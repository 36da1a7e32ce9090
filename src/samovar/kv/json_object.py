"""Typed reading of a JSON object that a user wrote: every complaint names the place, the field and the value, and a
field that nobody asked for is one, since a typo must not be silent."""

from __future__ import annotations

from collections.abc import Collection
import json

from samovar.base.errors import ConfigError
from samovar.base.shown import shown
from samovar.base.units import parse_bytes


class JsonObject:
    """Fields are taken one by one; what is left at the `end` is an error."""

    def __init__(self, fields: dict[str, object], where: str) -> None:
        self._fields = dict(fields)
        self._known: list[str] = []
        self.where = where

    @staticmethod
    def parse(text: str, where: str) -> JsonObject:
        try:
            value = json.loads(text, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where} is not valid JSON: {error}", param=where) from None
        return JsonObject.of(value, where)

    @staticmethod
    def of(value: object, where: str) -> JsonObject:
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be an object, got {shown(value)}", param=where)
        return JsonObject(value, where)

    def take(self, name: str) -> object:
        """None when it is absent or null."""
        self._known.append(name)
        return self._fields.pop(name, None)

    def choice(self, name: str, allowed: Collection[str], default: str | None = None) -> str:
        value = self.take(name)
        if value is None and default is not None:
            return default
        if value not in allowed:
            given = "is missing" if value is None else f"is {shown(value)}"
            raise self.error(name, f"{given}; known: {', '.join(allowed)}")
        return str(value)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error(name, f"is {shown(value)}; it must be a text")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """true and false, as themselves or as text."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.error(name, f"is {shown(value)}; it must be true or false")
        return value

    def count(self, name: str) -> int | None:
        """A whole number of at least 1."""
        value = self.take(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 60):
            raise self.error(name, f"is {shown(value)}; it must be a whole number of at least 1")
        return value

    def num_bytes(self, name: str) -> int | None:
        """A number of bytes, or text with a unit."""
        if isinstance(text := self._fields.get(name), str):
            self.take(name)
            return parse_bytes(text, f"{self.where}: {name}")
        return self.count(name)

    def list_of(self, name: str) -> list[object]:
        value = self.take(name)
        if not isinstance(value, list) or not value:
            given = "is missing" if value is None else f"is {shown(value)}"
            raise self.error(name, f"{given}; it must be a list with at least one entry")
        return value

    def without_meaning(self, names: Collection[str]) -> tuple[str, ...]:
        """Takes fields that other programs have; a warning for each that is given."""
        given = [name for name in names if name in self._fields]
        for name in given:
            del self._fields[name]
        return tuple(f"{self.where}: {name} has no meaning here and is ignored" for name in given)

    def end(self) -> None:
        for name in self._fields:
            raise self.error(name, f"is not known here; known: {', '.join(self._known)}")

    def error(self, name: str, complaint: str) -> ConfigError:
        return ConfigError(f"{self.where}: {shown(name)[1:-1]} {complaint}", param=self.where)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {shown(twice)} is there twice")
    return fields
