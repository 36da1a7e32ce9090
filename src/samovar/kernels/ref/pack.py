"""Packs rows of float32 or of a GGUF quantisation into the records of a matrix, in plain numpy.

GGUF's blocks are those of ggml-common.h; how they are taken apart follows `gguf.quants`, which gives values only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import Float32Array, Format, Source
from samovar.kernels.ref.records import GROUP, LANES, STRIP, records
from samovar.kernels.ref.rounding import from_bf16, to_bf16


class Quants(NamedTuple):
    """Of some rows: unsigned quants [count, k], scales [count, k / group] and minima, as the format has them."""

    quants: NDArray[np.uint8]
    scales: Float32Array
    minima: Float32Array | None = None


def pack(
    format: Format,
    data: NDArray[np.uint8],
    n: int,
    k: int,
    first: int,
    source: Source,
    raw: NDArray[np.uint8],
    order: NDArray[np.int32] | None,
) -> None:
    """As `PackedOps.pack`."""
    rows = np.ascontiguousarray(raw if order is None else raw[order])
    columns = np.arange(first, first + len(rows))
    assert columns[-1] < n
    block, lane = columns // LANES, columns % LANES
    parts = records(format, data, n, k)
    if parts.values is not None:
        padded = _padded(_plain(source, rows), k)
        if format == "bf16":
            parts.values[block, :, :, lane, :] = to_bf16(padded).reshape(len(rows), -1, STRIP // 2, 2)
        else:
            parts.values[block, :, :, lane] = padded.reshape(len(rows), -1, STRIP)
        return
    quants = _GGUF[source](rows) if source in _GGUF else _quantised(_plain(source, rows))
    per_strip, groups = STRIP // GROUP[format], -(-k // GROUP[format])
    assert parts.scales is not None
    parts.scales[block, :, :, lane] = _padded(quants.scales, groups, per_strip).reshape(len(rows), -1, per_strip)
    if parts.minima is not None:
        assert quants.minima is not None
        parts.minima[block, :, :, lane] = _padded(quants.minima, groups, per_strip).reshape(len(rows), -1, per_strip)
    values = _padded(quants.quants, k)
    if parts.quads is not None:
        parts.quads[block, :, :, lane, :] = values.reshape(len(rows), -1, 16, 4)
    else:
        assert parts.nibbles is not None
        halves = values.reshape(len(rows), -1, 2, 4, 2, 4)
        parts.nibbles[block, :, :, :, lane, :] = halves[:, :, :, :, 0] | halves[:, :, :, :, 1] << 4


def _plain(source: Source, rows: NDArray[np.uint8]) -> Float32Array:
    if source == "bf16":
        return from_bf16(rows.view(np.uint16))
    return rows.view({"f32": np.float32, "f16": np.float16}[source]).astype(np.float32)


def _padded(rows: NDArray[Any], length: int, unit: int = STRIP) -> NDArray[Any]:
    """[count, at most length] -> whole units."""
    return np.pad(rows, ((0, 0), (0, -(-length // unit) * unit - rows.shape[1])))


def _quantised(rows: NDArray[Any]) -> Quants:
    """Groups of 32 by their largest value, as GGUF's Q8_0; the scale is rounded to a half first."""
    wide = _padded(rows.astype(np.float32), rows.shape[1], 32).reshape(len(rows), -1, 32)
    scales = (np.abs(wide).max(-1) / np.float32(127)).astype(np.float16).astype(np.float32)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    quants = np.rint(wide * inverse[..., None]).clip(-127, 127) + 128
    return Quants(quants.astype(np.uint8).reshape(len(rows), -1)[:, : rows.shape[1]], scales)


def _halves(raw: NDArray[Any]) -> Float32Array:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _q8_0(rows: NDArray[Any]) -> Quants:
    blocks = rows.reshape(len(rows), -1, 34)
    quants = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).astype(np.int16) + 128
    return Quants(quants.astype(np.uint8).reshape(len(rows), -1), _halves(blocks[..., :2])[..., 0])


def _four_bits(bytes_: NDArray[Any]) -> NDArray[np.uint8]:
    """[..., m] -> [..., 2 m]: all low halves, then all high ones."""
    return np.concatenate((bytes_ & 15, bytes_ >> 4), axis=-1)


def _q4_0(rows: NDArray[Any]) -> Quants:
    blocks = rows.reshape(len(rows), -1, 18)
    return Quants(_four_bits(blocks[..., 2:]).reshape(len(rows), -1), _halves(blocks[..., :2])[..., 0])


def _q4_1(rows: NDArray[Any]) -> Quants:
    blocks = rows.reshape(len(rows), -1, 20)
    numbers = _halves(blocks[..., :4])
    return Quants(_four_bits(blocks[..., 4:]).reshape(len(rows), -1), numbers[..., 0], numbers[..., 1])


def _q4_k(rows: NDArray[Any]) -> Quants:
    """256 values: two halves, 8 scales and 8 minima of 6 bits in 12 bytes, 128 bytes of quants."""
    blocks = rows.reshape(len(rows), -1, 144)
    numbers, packed = _halves(blocks[..., :4]), blocks[..., 4:16]
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), axis=-1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), axis=-1)
    quants = _four_bits(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32))
    return Quants(
        quants.reshape(len(rows), -1),
        (numbers[..., :1] * scales).reshape(len(rows), -1),
        (-numbers[..., 1:] * minima).reshape(len(rows), -1),
    )


def _q6_k(rows: NDArray[Any]) -> Quants:
    """256 values: low 4 bits in 128 bytes, high 2 bits in 64, 16 signed scales, one half."""
    blocks = rows.reshape(len(rows), -1, 210)
    shape = blocks.shape[:2]
    low = _four_bits(blocks[..., :128].reshape(*shape, 2, 64))  # per half of the block: 128 values
    high = blocks[..., 128:192].reshape(*shape, 2, 1, 32) >> np.array([0, 2, 4, 6], dtype=np.uint8).reshape(4, 1) & 3
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float32)
    quants = low | (high.reshape(*shape, 2, 128) << 4)
    return Quants(
        quants.astype(np.uint8).reshape(len(rows), -1),
        (_halves(blocks[..., 208:]) * scales).reshape(len(rows), -1),
    )


_GGUF = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1, "q4_k": _q4_k, "q6_k": _q6_k}
