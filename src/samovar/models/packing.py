"""Packs a checkpoint's matrices for the packed ops, one tensor at a time.

A GGUF matrix stays in its own quantisation, its bytes only put into another order; what the ops have no format for, and
matrices that must be one but are stored unlike, become 8 bits with a scale per 32 inputs (as Q8_0), which loses nothing
that 4 to 6 bits have kept. Plain numbers become bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch

from samovar.base.errors import UnsupportedFeature
from samovar.kernels.cpu.pages import Arena
from samovar.kernels.packed_ops import SWIGLU_COLUMNS, Format, Handle, PackedOps, Source
from samovar.models.weights import StoredRows, TensorSource
from samovar.spec.dtype import Quantization

_PLAIN: dict[str, Source] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_OWN: dict[Format, Source] = {"q8": "q8_0", "q4_0": "q4_0", "q4_1": "q4_1", "q4_k": "q4_k", "q6_k": "q6_k"}
"""What each quantised format takes over bit for bit."""
FORMAT_OF_KIND: dict[str, Format] = {
    **dict.fromkeys(_PLAIN, "bf16"),
    **{source.upper(): format for format, source in _OWN.items()},
}
"""GGUF's types that have a packed format."""
WIDE: Format = "q8"
"""Takes what has no format of its own."""


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """[n, k] in records, for one version of the ops."""

    format: Format
    n: int
    k: int
    data: NDArray[np.uint8]
    """`handle` reads it in place."""
    handle: Handle


@dataclass(frozen=True, slots=True)
class Run:
    """Rows [row, row + count) of a tensor become outputs from `column` on."""

    column: int
    row: int
    count: int


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a packed matrix."""

    name: str
    runs: tuple[Run, ...]


def one_after_the_other(names: Sequence[str], sizes: Sequence[int]) -> tuple[Part, ...]:
    """`sizes`: outputs of each."""
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return tuple(Part(name, (Run(start, 0, size),)) for name, start, size in zip(names, starts, sizes, strict=True))


def alternating(gate: str, up: str, size: int) -> tuple[Part, ...]:
    """32 columns of gate, the same 32 of up, and so on: a hidden column's two halves are computed side by side.
    `size`, of each, is a multiple of 32."""
    assert size % SWIGLU_COLUMNS == 0
    starts = range(0, size, SWIGLU_COLUMNS)
    return tuple(
        Part(name, tuple(Run(2 * start + offset, start, SWIGLU_COLUMNS) for start in starts))
        for name, offset in ((gate, 0), (up, SWIGLU_COLUMNS))
    )


class Packer:
    """Reads from one source; `quantization` as the flag. Remembers what it had to widen, for one line of log."""

    def __init__(self, source: TensorSource, ops: PackedOps, quantization: Quantization) -> None:
        self._source = source
        self._ops = ops
        self._quantization = quantization
        self._memory = Arena()
        self._bytes: dict[Format, int] = {}
        self._widened: set[str] = set()

    def matrix(self, parts: Sequence[Part]) -> PackedMatrix:
        """The parts share their inputs. Raises UnsupportedFeature for values that cannot be quantised."""
        shapes = [self._source.shapes[part.name] for part in parts]
        n, k = sum(shape[0] for shape in shapes), shapes[0][1]
        stored = [self._source.stored(part.name) for part in parts]
        format = self._format([each.kind for each in stored])
        records = self._memory.take(self._ops.packed_bytes(format, n, k))
        for part, rows in zip(parts, stored, strict=True):
            source = _direct_source(format, rows.kind)
            if source is None:
                source, rows = "f32", self._plain_rows(part.name)
            for run in part.runs:
                order = None if rows.order is None else rows.order[run.row : run.row + run.count]
                raw = rows.rows[run.row : run.row + run.count] if order is None else rows.rows
                self._ops.pack(format, records, n, k, run.column, source, raw, order)
        self._bytes[format] = self._bytes.get(format, 0) + records.size
        return PackedMatrix(format, n, k, records, self._ops.matrix(format, n, k, records))

    def vector(self, parts: Sequence[Part]) -> NDArray[np.float32]:
        """Biases in the places of their matrix's outputs; a norm, as its single part."""
        out = np.empty(sum(self._source.shapes[part.name][0] for part in parts), dtype=np.float32)
        for part in parts:
            values = self._values(part.name)
            for run in part.runs:
                out[run.column : run.column + run.count] = values[run.row : run.row + run.count]
        return out

    def report(self) -> str:
        """What the weights became, for the log."""
        sizes = ", ".join(f"{size / 1e6:.0f} MB as {name}" for name, size in self._bytes.items())
        widened = f"; stored as {', '.join(sorted(self._widened))} and widened to {WIDE}" if self._widened else ""
        return sizes + widened

    def _format(self, kinds: Sequence[str]) -> Format:
        if self._quantization == "none":
            return "bf16"
        if self._quantization == "int8":
            return "q8"
        formats = {FORMAT_OF_KIND.get(kind) for kind in kinds}
        first = FORMAT_OF_KIND.get(kinds[0])
        if len(formats) == 1 and first is not None:
            return first
        if "bf16" in formats:
            return "bf16"
        self._widened.add("+".join(dict.fromkeys(kinds)))
        return WIDE

    def _plain_rows(self, name: str) -> StoredRows:
        """Dequantised, on their way to 8 bits."""
        values = self._values(name)
        if not np.isfinite(values).all():
            raise UnsupportedFeature(
                f"{self._source.label(name)} holds values that are not finite; they cannot be quantised to int8"
            )
        return StoredRows("F32", values.view(np.uint8), None)

    def _values(self, name: str) -> NDArray[np.float32]:
        values = torch.empty(self._source.shapes[name], dtype=torch.float32)
        self._source.read_into(name, values)
        array: NDArray[np.float32] = values.numpy()
        return array


def _direct_source(format: Format, kind: str) -> Source | None:
    """What rows of this type are to `pack`, where they go into the format as they are."""
    if format == "bf16":
        return _PLAIN.get(kind)
    return _OWN[format] if format in _OWN and kind.lower() == _OWN[format] else None
