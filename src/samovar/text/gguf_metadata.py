"""Typed access to the key-value metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from samovar.base.errors import CheckpointError
from samovar.spec.gguf_file import read_gguf_header


@dataclass(frozen=True, slots=True)
class GgufMetadata:
    """The accessors answer None for an absent key and raise CheckpointError, naming file and key, for a value of
    another type."""

    path: Path
    values: Mapping[str, object]

    def string(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a string")

    def integer(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(key, "an integer")

    def flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(key, "a boolean")

    def strings(self, key: str) -> Sequence[str] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise self._wrong(key, "an array of strings")

    def integers(self, key: str) -> Sequence[int] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(_is_integer(item) for item in value):
            return value
        raise self._wrong(key, "an array of integers")

    def numbers(self, key: str) -> Sequence[float] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(_is_integer(item) or isinstance(item, float) for item in value):
            return value
        raise self._wrong(key, "an array of numbers")

    def _wrong(self, key: str, expected: str) -> CheckpointError:
        found = type(self.values[key]).__name__
        return CheckpointError(f"{self.path}: {key} is a {found}, expected {expected}")


def read_gguf_metadata(path: Path) -> GgufMetadata:
    """Raises CheckpointError for a file that is missing, truncated or corrupt, and UnsupportedFeature for a version
    that cannot be read."""
    return GgufMetadata(path, read_gguf_header(path).metadata)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
