"""The ops over packed matrices, in plain numpy: the definition the native kernels are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import SWIGLU_COLUMNS, Float32Array, Format
from samovar.kernels.ref.records import packed_bytes, unpack, unpack_wide
from samovar.kernels.ref.rounding import rounded_input, rounded_weights


@dataclass(frozen=True, slots=True)
class Matrix:
    """`PackedOps.matrix` of the reference: unpacked at every use, so that nothing but the records is kept."""

    format: Format
    n: int
    k: int
    data: NDArray[np.uint8]
    bf16_inputs: bool = False
    """As in `PackedOps`."""

    def __post_init__(self) -> None:
        assert self.data.size == packed_bytes(self.format, self.n, self.k)

    def values(self) -> Float32Array:
        return unpack(self.format, self.data, self.n, self.k)

    def factors(self) -> NDArray[np.float64]:
        """The values as they are multiplied."""
        if not self.bf16_inputs or self.format in ("bf16", "f32"):
            return self.values().astype(np.float64)
        return rounded_weights(unpack_wide(self.format, self.data, self.n, self.k)).astype(np.float64)


def linear(x: Float32Array, matrix: Matrix, bias: Float32Array | None, add: bool, out: Float32Array) -> None:
    """The products of the rounded inputs, summed in float64."""
    product = _product(x, matrix, bias).astype(np.float32)
    out[...] = out + product if add else product


def linear_swiglu(x: Float32Array, matrix: Matrix, bias: Float32Array | None, out: Float32Array) -> None:
    pairs = _product(x, matrix, bias).reshape(len(x), -1, 2, SWIGLU_COLUMNS)
    gate, up = pairs[:, :, 0], pairs[:, :, 1]
    # written with the exponential of a negative number, which cannot overflow
    decay = np.exp(-np.abs(gate))
    sigmoid = np.where(gate >= 0, 1, decay) / (1 + decay)
    out[...] = (gate * sigmoid * up).reshape(len(x), -1)


def _product(x: Float32Array, matrix: Matrix, bias: Float32Array | None) -> NDArray[np.float64]:
    product = rounded_input(x, matrix.format, matrix.bf16_inputs).astype(np.float64) @ matrix.factors().T
    return product if bias is None else product + bias


def embed(matrix: Matrix, ids: NDArray[np.int64], out: Float32Array) -> None:
    out[...] = matrix.values()[ids]


def rms_norm(x: Float32Array, weight: Float32Array, eps: float, out: Float32Array) -> None:
    wide = x.astype(np.float64)
    out[...] = wide / np.sqrt(np.square(wide).mean(-1, keepdims=True) + eps) * weight


def rope(x: Float32Array, positions: NDArray[np.int64], cos: Float32Array, sin: Float32Array) -> None:
    half = x.shape[-1] // 2
    first, second = x[..., :half].copy(), x[..., half:].copy()
    c, s = cos[positions][:, None], sin[positions][:, None]
    x[..., :half] = first * c - second * s
    x[..., half:] = second * c + first * s


def argmax(logits: Float32Array, index: NDArray[np.int32], finite: NDArray[np.bool_]) -> None:
    index[...] = logits.argmax(axis=-1)
    finite[...] = np.isfinite(logits).all(axis=-1)
