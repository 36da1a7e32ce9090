"""How activations are rounded at a matrix's input, in plain numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import Float32Array, Format

GROUP = 32


def to_bf16(x: Float32Array) -> NDArray[np.uint16]:
    """To nearest even. NaN stays NaN only where its high half says so; nothing here makes one."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> Float32Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded_weights(exact: NDArray[np.float64]) -> Float32Array:
    """To float32, then to bf16, ties away from zero."""
    bits = exact.astype(np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def rounded_input(x: Float32Array, format: Format, bf16_inputs: bool = False) -> Float32Array:
    """x [T, k] as a matrix of this format sees it."""
    if format == "f32":
        return x
    if format == "bf16" or bf16_inputs:
        return from_bf16(to_bf16(x))
    num_tokens, k = x.shape
    groups = np.pad(x, ((0, 0), (0, -k % GROUP))).reshape(num_tokens, -1, GROUP)
    scales = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    quants = np.rint(np.divide(groups, scales, out=np.zeros_like(groups), where=scales > 0))
    rounded: Float32Array = (quants * scales).reshape(num_tokens, -1)[:, :k]
    return rounded
