"""Reads the header of a GGUF file: its key-value pairs and where its tensors lie.

Standard library only, and with bounds: `gguf.GGUFReader` takes two seconds over a vocabulary of 49,152 and answers a
truncated file with a numpy traceback. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from dataclasses import dataclass
import mmap
from pathlib import Path
import struct

from samovar.base.errors import CheckpointError, UnsupportedFeature

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_MAX_ARRAY_DEPTH = 4
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """`shape` is outermost first, as in torch; `offset` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    metadata: dict[str, object]
    """Values are int, float, bool, str, or lists of them."""
    tensors: dict[str, GGUFTensor]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Raises CheckpointError when the file is not there, not GGUF, or ends inside its header."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            if magic != _MAGIC:
                raise CheckpointError(f"{path}: not a GGUF file: it begins with {magic!r} instead of {_MAGIC!r}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data, path).header()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error


class _Reader:
    """A cursor over the mapped file that never reads past its end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._at = len(_MAGIC)

    def header(self) -> GGUFHeader:
        version = self._unsigned(4)
        if version not in _VERSIONS:
            raise UnsupportedFeature(
                f"{self._path}: GGUF version {version} is not supported; supported: 2, 3 (little-endian)"
            )
        num_tensors, num_pairs = self._unsigned(8), self._unsigned(8)
        metadata: dict[str, object] = {}
        for _ in range(num_pairs):
            key = self._string()
            metadata[key] = self._value(self._unsigned(4))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._malformed(f"general.alignment is {alignment!r}")
        found = [self._tensor() for _ in range(num_tensors)]
        start = -(-self._at // alignment) * alignment
        tensors = {t.name: GGUFTensor(t.name, t.shape, t.ggml_type, start + t.offset) for t in found}
        return GGUFHeader(metadata, tensors)

    def _tensor(self) -> GGUFTensor:
        name = self._string()
        num_dimensions = self._unsigned(4)
        if num_dimensions > _MAX_DIMENSIONS:
            raise self._malformed(f"tensor {name!r} has {num_dimensions} dimensions")
        innermost_first = [self._unsigned(8) for _ in range(num_dimensions)]
        return GGUFTensor(name, tuple(reversed(innermost_first)), self._unsigned(4), self._unsigned(8))

    def _value(self, kind: int, depth: int = 0) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            if depth == _MAX_ARRAY_DEPTH:
                raise self._malformed(f"arrays are nested more than {_MAX_ARRAY_DEPTH} deep")
            return self._array(depth)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise self._malformed(f"value type {kind} is unknown")
        return scalar.unpack(self._take(scalar.size))[0]

    def _array(self, depth: int) -> list[object]:
        kind, length = self._unsigned(4), self._unsigned(8)
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return [value for (value,) in scalar.iter_unpack(self._take(scalar.size * length))]
        self._need(length)  # a string or array takes more than one byte, so a corrupt length ends here
        return [self._value(kind, depth + 1) for _ in range(length)]

    def _string(self) -> str:
        raw = self._take(self._unsigned(8))
        return raw.decode("utf-8", "replace")

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _take(self, size: int) -> bytes:
        self._need(size)
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def _need(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise CheckpointError(
                f"{self._path}: truncated: the header needs {self._at + size} bytes or more, the file has"
                f" {len(self._data)}"
            )

    def _malformed(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path}: malformed GGUF header at byte {self._at}: {what}")
