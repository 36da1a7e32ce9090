"""Random packed matrices, KV pools and rows, for every version of the packed ops."""

from __future__ import annotations

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
import numpy as np
from numpy.typing import NDArray
import pytest
import torch

from samovar.kernels.cpu.native_library import native_library
from samovar.kernels.packed_ops import TILE_TOKENS, Format, PackedOps, Source
from samovar.kernels.ref.rounding import to_bf16
from samovar.kernels.ref.tiled_attention import write_kv
from samovar.kernels.rows import Rows, make_rows
from samovar.kernels.table import PACKED_REFERENCE

Kind = GGMLQuantizationType
KINDS: dict[Format, GGMLQuantizationType] = {
    "q8": Kind.Q8_0, "q4_0": Kind.Q4_0, "q4_1": Kind.Q4_1, "q4_k": Kind.Q4_K, "q6_k": Kind.Q6_K,
}  # fmt: skip
SOURCES: dict[Format, Source] = {"q8": "q8_0", "q4_0": "q4_0", "q4_1": "q4_1", "q4_k": "q4_k", "q6_k": "q6_k"}
HALVES: dict[Format, slice] = {
    "q8": slice(0, 2), "q4_0": slice(0, 2), "q4_1": slice(0, 4), "q4_k": slice(0, 4), "q6_k": slice(208, 210),
}  # fmt: skip
"""Where a GGUF block holds its 16-bit numbers."""


def native_levels() -> list[object]:
    """Parameters: every instruction set that was built and that this machine has."""
    library = native_library()
    if library is None:
        return [pytest.param("", marks=pytest.mark.skip(reason="this installation has no native kernels"))]
    return list(library.isa_levels)


needs_native = pytest.mark.skipif(native_library() is None, reason="this installation has no native kernels")


def native(isa: str, threads: int = 2) -> PackedOps:
    from samovar.kernels.cpu.native_ops import native_ops

    return native_ops(isa, threads)


def zeros(num_bytes: int) -> NDArray[np.uint8]:
    """Torch aligns to 64 bytes, numpy to 16."""
    return torch.zeros(num_bytes, dtype=torch.uint8).numpy()


def random_gguf(format: Format, n: int, k: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """[n, bytes of a row]: every bit pattern of the quants, scales of both signs."""
    elements, size = GGML_QUANT_SIZES[KINDS[format]]
    blocks = rng.integers(0, 256, (n, k // elements, size), dtype=np.uint8)
    place = blocks[..., HALVES[format]]
    numbers = (rng.normal(size=(*place.shape[:2], place.shape[2] // 2)) / 8).astype(np.float16)
    place[...] = numbers.view(np.uint8)
    return blocks.reshape(n, -1)


def random_records(format: Format, n: int, k: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    data = zeros(PACKED_REFERENCE.packed_bytes(format, n, k))
    if format in KINDS:
        PACKED_REFERENCE.pack(format, data, n, k, 0, SOURCES[format], random_gguf(format, n, k, rng), None)
    else:
        values = rng.normal(size=(n, k)).astype(np.float32)
        PACKED_REFERENCE.pack(format, data, n, k, 0, "f32", values.view(np.uint8), None)
    return data


@dataclass(frozen=True)
class Attention:
    """Pools, rows over them, and queries."""

    keys: NDArray[np.uint16]
    values: NDArray[np.uint16]
    rows: Rows
    q: NDArray[np.float32]
    k: list[NDArray[np.float32]]
    """[context, Hkv, D] of each row, before it was rounded."""
    v: list[NDArray[np.float32]]


def random_attention(
    chunks: list[tuple[int, int]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_tokens: int,
    rng: np.random.Generator,
    stale: NDArray[np.uint16] | None = None,
) -> Attention:
    """`chunks`: (context, tokens in the step) of each row. Blocks in random order; what no row wrote is one of the bit
    patterns of `stale`, or large."""
    needed = [-(-context // block_tokens) for context, _ in chunks]
    num_blocks = sum(needed) + 3
    tiles = (num_blocks, block_tokens // TILE_TOKENS, kv_heads)
    left = to_bf16(np.array([3e4], dtype=np.float32)) if stale is None else stale
    # resized, not drawn: the rest is the same whatever was left behind
    keys = np.resize(left, (*tiles, head_dim // 2, TILE_TOKENS, 2))
    values = np.resize(left, (*tiles, TILE_TOKENS // 2, head_dim, 2))
    order, tables, all_k, all_v = rng.permutation(num_blocks), [], [], []
    for (context, _), count in zip(chunks, needed, strict=True):
        table, order = np.ascontiguousarray(order[:count], dtype=np.int64), order[count:]
        k, v = (rng.normal(size=(context, kv_heads, head_dim)).astype(np.float32) for _ in range(2))
        at = np.arange(context)
        write_kv(keys, values, table[at // block_tokens] * block_tokens + at % block_tokens, k, v)
        tables.append(table)
        all_k.append(k)
        all_v.append(v)
    rows = make_rows([count for _, count in chunks], [c - count for c, count in chunks], tables, block_tokens)
    # a slice of something wider, as the model passes it
    q = rng.normal(size=(sum(count for _, count in chunks), heads + kv_heads, head_dim)).astype(np.float32) * 2
    return Attention(keys, values, rows, q[:, :heads], all_k, all_v)
