"""The ops over packed matrices and tiled KV: one record of functions, of which the native kernels are one version and
plain numpy, under `ref/`, is another. Arrays in, arrays written in place.

A packed matrix holds columns of 16 outputs in the order dot products read them, in one of `FORMATS`; the records are
drawn in `cpu/native/layout.h`. Activations are float32 and are rounded at a matrix's input, to bfloat16 for a bf16
matrix, to 8 bits in groups of 32 for a quantised one, or to bfloat16 there too (`PackedOps.bf16_inputs`). For one
version and instruction set the bits of a row depend on nothing but that row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # rows bring torch, which the process that answers HTTP must not load
    from samovar.kernels.rows import Rows

Format = Literal["bf16", "q8", "q4_0", "q4_1", "q4_k", "q6_k", "f32"]
FORMATS: tuple[Format, ...] = get_args(Format)
Source = Literal["f32", "f16", "bf16", "q4_0", "q4_1", "q8_0", "q4_k", "q6_k"]
"""How rows lie before they are packed: plain numbers, or GGUF's blocks. Plain ones pack to f32, bf16 or q8, a quantised
one to its own format alone (q8_0 to q8), exactly."""
SWIGLU_COLUMNS = 32
"""A gate_up matrix alternates this many columns of gate and as many of up."""
TILE_TOKENS = 16
"""Tokens of a tile of KV: a block is a whole number of them."""

Float32Array = NDArray[np.float32]
KVTiles = NDArray[np.uint16] | NDArray[np.uint8]
"""Keys or values of one layer, [num_blocks, tiles of a block, Hkv, ...]. uint16: bfloat16, keys [..., D / 2, 16, 2],
values [..., 8, D, 2]. uint8: 8 bits with a scale per token and head, [..., 16 D + 64], as `cpu/native/layout.h`
says."""
Handle = Any
"""A packed matrix as the version of the ops that made it knows it."""

Draw = Callable[
    [
        Float32Array,
        NDArray[np.int32],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.int32],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.int32],
    ],
    None,
]
"""(logits [S, V], rows, temperature, min_p, top_k, top_p, u, token, each [N]): for each of `rows` the token that `u` in
[0, 1) draws from what min_p, top_k (0: off) and top_p leave, in this order. Logits are finite or -inf."""


class MonoProgram(Protocol):
    """A decode step of a llama-family model as one call; R rows, at most 64."""

    def step(
        self,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int64],
        tables: NDArray[np.int64],
        logits: Float32Array,
    ) -> None:
        """All [R]; tables: addresses, each table covering its row's position. logits [R, V] are written, and KV."""

    def run_stages(
        self,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        slots: NDArray[np.int64],
        tables: NDArray[np.int64],
        logits: Float32Array,
        start: int,
        end: int,
    ) -> list[tuple[str, int]]:
        """Stages [start, end) of the step alone; returns name and layer (-1 outside the layers) of all its stages."""

    def buffer(self, name: str, rows: int) -> Float32Array:
        """A copy of "x", "qkv", "attention" or "hidden"."""


@dataclass(frozen=True, slots=True)
class PackedOps:
    """T tokens, H query heads, Hkv KV heads of D dimensions, R rows, I hidden columns, V the vocabulary."""

    name: str
    """Of the instruction set, or "reference"."""
    packed_bytes: Callable[[Format, int, int], int]
    """(format, n, k): bytes of a matrix of n outputs and k inputs."""
    pack: Callable[
        [Format, NDArray[np.uint8], int, int, int, Source, NDArray[np.uint8], NDArray[np.int32] | None],
        None,
    ]
    """(format, data, n, k, first, source, raw, order): writes outputs [first, first + count) of a matrix into `data`,
    which was all zeros before the first of them. raw [rows, bytes of a row]; `order` [count]: which of its rows they
    are; None: all, in order."""
    matrix: Callable[[Format, int, int, NDArray[np.uint8]], Handle]
    """(format, n, k, data): reads `data` in place, 64-byte aligned, and keeps it alive."""

    linear: Callable[[Float32Array, Handle, Float32Array | None, bool, Float32Array], None]
    """(x [T, k], matrix, bias [n] or None, add, out [T, n]): out = x W^T + bias, added to what is there if `add`."""
    linear_swiglu: Callable[[Float32Array, Handle, Float32Array | None, Float32Array], None]
    """(x [T, k], gate_up, bias, out [T, I]): silu(gate) * up; gate_up as by `SWIGLU_COLUMNS`, the bias likewise."""
    embed: Callable[[Handle, NDArray[np.int64], Float32Array], None]
    """(matrix, ids [T], out [T, k]): rows of the matrix."""
    rms_norm: Callable[[Float32Array, Float32Array, float, Float32Array], None]
    """(x [..., D], weight [D], eps, out): out may be x; all strides but the last are free."""
    rope: Callable[[Float32Array, NDArray[np.int64], Float32Array, Float32Array], None]
    """(x [T, H, D], positions [T], cos, sin [L, D / 2]): in place; the tokens' stride is free."""
    write_kv: Callable[
        [KVTiles, KVTiles, NDArray[np.int64], Float32Array, Float32Array],
        None,
    ]
    """(keys, values, slots [T], k, v [T, Hkv, D]): rounds to what the pools hold; slot = block * block_tokens + offset.
    The tokens' stride is free."""
    attention: Callable[
        [Float32Array, KVTiles, KVTiles, Rows, float, Float32Array],
        None,
    ]
    """(q [T, H, D], keys, values, rows, scale, out [T, H, D]): causal attention of every row over its context. The
    tokens' stride of q is free."""
    argmax: Callable[[Float32Array, NDArray[np.int32], NDArray[np.bool_]], None]
    """(logits [S, V], index [S], finite [S]): per row the first largest one, and whether all are finite."""
    draw: Draw | None = None
    """None where there is none: whoever samples then has a way of its own."""
    bf16_inputs: bool = False
    """Whether a quantised matrix is multiplied as bfloat16: inputs rounded to it, to nearest even, and its weights,
    ties away from zero."""
    mono: Callable[[dict[str, object], list[dict[str, object]]], MonoProgram] | None = None
    """(model, layers): the program over these weights and pools, which it keeps alive; `models.mono` describes them.
    None where there is none."""
