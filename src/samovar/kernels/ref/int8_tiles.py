"""KV tiles of 8 bits in plain numpy: 16 tokens of one head, four bytes at a time as dot products take them, then 16
float32 scales. Keys [D / 4, 16 tokens, 4 dimensions], values [4, D, 4 tokens]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.packed_ops import TILE_TOKENS, Float32Array, KVTiles

SMALLEST = np.float32(1e-30)
"""A token whose largest number is below this is kept as zeros."""


def write(keys: KVTiles, values: KVTiles, slots: NDArray[np.int64], k: Float32Array, v: Float32Array) -> None:
    tiles, offset = slots // TILE_TOKENS, slots % TILE_TOKENS
    quants, scales = _parts(keys, (-1, TILE_TOKENS, 4))
    rounded, scales[tiles, :, offset] = _rounded(k)
    quants[tiles, :, :, offset] = rounded.reshape(*k.shape[:2], -1, 4)
    quants, scales = _parts(values, (4, -1, 4))
    quants[tiles, :, offset // 4, :, offset % 4], scales[tiles, :, offset] = _rounded(v)


def read(keys: KVTiles, values: KVTiles, slots: NDArray[np.int64]) -> tuple[Float32Array, Float32Array]:
    """K and V [N, Hkv, D] of these slots."""
    tiles, offset = slots // TILE_TOKENS, slots % TILE_TOKENS
    quants, k_scales = _parts(keys, (-1, TILE_TOKENS, 4))
    k = quants[tiles, :, :, offset].reshape(len(slots), keys.shape[2], -1).astype(np.float32)
    quants, v_scales = _parts(values, (4, -1, 4))
    v = quants[tiles, :, offset // 4, :, offset % 4].astype(np.float32)
    return k * k_scales[tiles, :, offset, None], v * v_scales[tiles, :, offset, None]


def _parts(pool: KVTiles, shape: tuple[int, ...]) -> tuple[NDArray[np.int8], Float32Array]:
    """Views: [tiles, Hkv, *shape] and [tiles, Hkv, 16]."""
    flat = pool.reshape(-1, *pool.shape[2:])
    elements = flat.shape[-1] - 4 * TILE_TOKENS
    quants = flat[..., :elements].view(np.int8)
    return quants.reshape(*quants.shape[:2], *shape), flat[..., elements:].view(np.float32)


def _rounded(x: Float32Array) -> tuple[NDArray[np.int8], Float32Array]:
    """[N, Hkv, D] -> whole numbers and scales [N, Hkv]: one per token and head, so that a token's numbers do not depend
    on which tokens share its block."""
    top = np.abs(x).max(-1)
    some = top >= SMALLEST
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=some)
    return np.rint(x * inverse[..., None]).astype(np.int8), np.where(some, top / np.float32(127), np.float32(0))
