"""Typed reading of a checkpoint's settings: every complaint names the file, the field and the value it holds."""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from samovar.base.errors import CheckpointError, UnsupportedFeature


class Fields:
    """A mapping read from `where`. A field that is absent or null has its default; without a default it is an error."""

    def __init__(self, data: Mapping[str, object], where: str, prefix: str = "") -> None:
        self._data = data
        self._prefix = prefix
        self.where = where

    def __contains__(self, name: str) -> bool:
        """True for a field that is there, even as null."""
        return self._prefix + name in self._data

    def has(self, name: str) -> bool:
        return self._data.get(self._prefix + name) is not None

    def full_name(self, name: str) -> str:
        return self._prefix + name

    def raw(self, name: str) -> object:
        return self._data.get(self._prefix + name)

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, value, "an integer")
        if value < minimum:
            raise self._wrong(name, value, f"at least {minimum}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Finite and positive: no field of a checkpoint that is read here may be zero or less."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        if not (math.isfinite(value) and value > 0):
            raise self._wrong(name, value, "finite and greater than 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, value, "a string")
        return value

    def integers(self, name: str) -> list[int]:
        """Empty when absent, as the two below."""
        value = self._list(name)
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            raise self._wrong(name, value, "a list of integers")
        return value

    def numbers(self, name: str) -> list[float]:
        value = self._list(name)
        if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in value):
            raise self._wrong(name, value, "a list of numbers")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._list(name)
        if not all(isinstance(item, str) for item in value):
            raise self._wrong(name, value, "a list of strings")
        return value

    def _list(self, name: str) -> list[Any]:
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value

    def mapping(self, name: str) -> dict[str, object]:
        """Empty when absent."""
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return value

    def nested(self, name: str) -> Fields:
        return Fields(self.mapping(name), f"{self.where}: {self._prefix}{name}")

    def unsupported(self, name: str, supported: str) -> UnsupportedFeature:
        value = _shown(self.raw(name))
        return UnsupportedFeature(
            f"{self.where}: {self._prefix}{name} = {value} is not supported; supported: {supported}"
        )

    def _wrong(self, name: str, value: object, wanted: str) -> CheckpointError:
        if value is None:
            return CheckpointError(f"{self.where}: field {self._prefix}{name} is missing; it must be {wanted}")
        return CheckpointError(f"{self.where}: field {self._prefix}{name} is {_shown(value)}; it must be {wanted}")


def _shown(value: object) -> str:
    # Not the whole of a vocabulary, only to cut it off.
    shown = repr(value[:20]) if isinstance(value, list) else repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
