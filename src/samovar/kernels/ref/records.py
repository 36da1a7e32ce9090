"""The records of a packed matrix as named numpy views, and the values they stand for.

A matrix [n, k] is blocks of 16 outputs, a block strips of 64 inputs; `cpu/native/layout.h` draws a strip per format.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import Float32Array, Format

LANES = 16
STRIP = 64
STRIP_BYTES: dict[Format, int] = {
    "bf16": 2048, "q8": 1088, "q4_0": 576, "q4_1": 640, "q4_k": 768, "q6_k": 1280, "f32": 4096,
}  # fmt: skip
SCALE_DTYPES: dict[Format, type[np.floating]] = {
    "q8": np.float16, "q4_0": np.float16, "q4_1": np.float16, "q4_k": np.float32, "q6_k": np.float32,
}  # fmt: skip
GROUP: dict[Format, int] = {"q8": 32, "q4_0": 32, "q4_1": 32, "q4_k": 32, "q6_k": 16}
"""Inputs that share a scale."""
OFFSET: dict[Format, int] = {"q8": 128, "q4_0": 8, "q4_1": 0, "q4_k": 0, "q6_k": 32}
NIBBLES: tuple[Format, ...] = ("q4_0", "q4_1", "q4_k")
MINIMA: tuple[Format, ...] = ("q4_1", "q4_k")


def packed_bytes(format: Format, n: int, k: int) -> int:
    return math.ceil(n / LANES) * math.ceil(k / STRIP) * STRIP_BYTES[format]


@dataclass(frozen=True, slots=True)
class Records:
    """Writable views of a matrix's bytes. B blocks, S strips; the last axes are what one output has in one strip."""

    values: NDArray[Any] | None
    """bf16 and f32: [B, S, 64, 16] of uint16 or float32."""
    quads: NDArray[np.uint8] | None
    """q8 and q6_k: [B, S, 16 quads, 16 outputs, 4]."""
    nibbles: NDArray[np.uint8] | None
    """[B, S, 2 groups, 4 vectors, 16 outputs, 4]."""
    scales: NDArray[np.floating] | None
    """[B, S, groups, 16]."""
    minima: NDArray[np.floating] | None
    """As scales."""


def records(format: Format, data: NDArray[np.uint8], n: int, k: int) -> Records:
    strips = data.reshape(math.ceil(n / LANES), math.ceil(k / STRIP), STRIP_BYTES[format])
    place = strips.shape[:2]
    if format == "f32":
        return Records(strips.view(np.float32).reshape(*place, STRIP, LANES), None, None, None, None)
    if format == "bf16":
        pairs = strips.view(np.uint16).reshape(*place, STRIP // 2, LANES, 2)
        return Records(pairs, None, None, None, None)
    nibbles = format in NIBBLES
    end = 512 if nibbles else 1024
    quants = strips[..., :end]
    numbers = strips[..., end:].view(SCALE_DTYPES[format]).reshape(*place, -1, LANES)
    groups = STRIP // GROUP[format]
    return Records(
        values=None,
        quads=None if nibbles else quants.reshape(*place, 16, LANES, 4),
        nibbles=quants.reshape(*place, 2, 4, LANES, 4) if nibbles else None,
        scales=numbers[:, :, :groups],
        minima=numbers[:, :, groups:] if format in MINIMA else None,
    )


def unpack(format: Format, data: NDArray[np.uint8], n: int, k: int) -> Float32Array:
    """[n, k] float32: what the matrix stands for, the product and the sum rounded to float32."""
    return _unpack(format, data, n, k, np.float32)


def unpack_wide(format: Format, data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float64]:
    """As `unpack`, in float64."""
    return _unpack(format, data, n, k, np.float64)


def _unpack(format: Format, data: NDArray[np.uint8], n: int, k: int, dtype: type[np.floating]) -> NDArray[Any]:
    parts = records(format, data, n, k)
    if parts.values is not None:
        values = parts.values
        if format == "bf16":
            wide = values.astype(np.uint32) << 16
            by_output = wide.view(np.float32).transpose(0, 3, 1, 2, 4)
        else:
            by_output = values.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(_matrix(by_output)[:n, :k], dtype=dtype)
    if parts.nibbles is not None:
        both = np.stack((parts.nibbles & 15, parts.nibbles >> 4), axis=5)  # [B, S, group, vector, output, half, 4]
        quants = _matrix(both.transpose(0, 4, 1, 2, 3, 5, 6))
    else:
        assert parts.quads is not None
        quants = _matrix(parts.quads.transpose(0, 3, 1, 2, 4))
    assert parts.scales is not None
    numbers = _spread(parts.scales, format, dtype) * (quants.astype(dtype) - OFFSET[format])
    if parts.minima is not None:
        numbers = numbers + _spread(parts.minima, format, dtype)
    return np.ascontiguousarray(numbers[:n, :k])


def _matrix(by_output: NDArray[Any]) -> NDArray[Any]:
    """[B, 16, ...] -> [16 B, inputs]"""
    return by_output.reshape(by_output.shape[0] * LANES, -1)


def _spread(numbers: NDArray[np.floating], format: Format, dtype: type[np.floating]) -> NDArray[Any]:
    """[B, S, groups, 16] -> [16 B, inputs]: each group's number at all of its inputs."""
    return _matrix(numbers.astype(dtype).transpose(0, 3, 1, 2)).repeat(GROUP[format], axis=1)
