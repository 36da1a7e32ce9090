"""The checksum of a block's bytes, bound to what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
import xxhash

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Bytes = NDArray[np.uint8]

_PIECE_BYTES = 256 << 10


def block_checksum(data: ReadableBuffer, key: bytes, generation: int) -> bytes:
    """16 bytes: xxh3-128 of `data`, then `key`, `generation` and the key's length. So bytes that are intact but
    belong to another block, or to an earlier owner of the same place, do not pass. `data` is C-contiguous; it is read
    once, and above 64 KiB without the GIL. Detects damage; it is no defence against someone who makes bytes to
    fit."""
    # Fed in pieces, not as one call with a seed: older releases keep the GIL in the functions that hash at once.
    return _bound(xxhash.xxh3_128(data), key, generation)


def copy_with_checksum(target: Bytes, source: Bytes, hashed: Bytes, key: bytes, generation: int) -> bytes:
    """Copies `source` to `target`, which has its size, and returns `block_checksum` of `hashed`: whichever of the two
    nobody else can write. Piece by piece, so that a core's cache holds a piece while it is read twice."""
    state = xxhash.xxh3_128()
    for at in range(0, source.size, _PIECE_BYTES):
        piece = slice(at, at + _PIECE_BYTES)
        np.copyto(target[piece], source[piece])
        state.update(hashed[piece].data)
    return _bound(state, key, generation)


def _bound(state: xxhash.xxh3_128, key: bytes, generation: int) -> bytes:
    state.update(key + generation.to_bytes(8, "little") + len(key).to_bytes(2, "little"))
    return state.digest()
