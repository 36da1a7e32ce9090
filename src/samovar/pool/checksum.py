"""The checksum of a block's bytes, bound to what they are, by itself or in one pass with a copy.

Where the native extension is installed it does what is long enough for it, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
import xxhash

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

try:
    from samovar.pool import _native
except ImportError:  # installed without a compiler
    _NATIVE_FROM_BYTES = float("inf")
else:
    _NATIVE_FROM_BYTES = float(_native.LEAST_BYTES)

Bytes = NDArray[np.uint8]

_PIECE_BYTES = 256 << 10


def block_checksum(data: ReadableBuffer, key: bytes, generation: int) -> bytes:
    """16 bytes: xxh3-128 of `data`, then of what `binding` says. So bytes that are intact but belong to another block,
    or to an earlier owner of the same place, do not pass. `data` is C-contiguous; it is read once, and above 64 KiB
    without the GIL. Detects damage; it is no defence against someone who makes bytes to fit."""
    if memoryview(data).nbytes >= _NATIVE_FROM_BYTES:
        return _native.checksum(data, binding(key, generation))
    return plain_checksum(data, key, generation)


def copy_with_checksum(
    target: Bytes, source: Bytes, hashed: Bytes, key: bytes, generation: int, *, cached: bool = False
) -> bytes:
    """Copies `source` to `target`, which has its size, and returns `block_checksum` of `hashed`: whichever of the two
    nobody else can write. `cached`: `target` is read next, so it had better stay in the core's cache; else it is
    written past the caches, which is faster."""
    if source.size >= _NATIVE_FROM_BYTES:
        # Each byte is loaded once: what is hashed is in both.
        return _native.copy(target.data, source.data, binding(key, generation), cached)
    return plain_copy(target, source, hashed, key, generation)


def binding(key: bytes, generation: int) -> bytes:
    """What follows a payload in its checksum."""
    return key + generation.to_bytes(8, "little") + len(key).to_bytes(2, "little")


def plain_checksum(data: ReadableBuffer, key: bytes, generation: int) -> bytes:
    """`block_checksum` without the extension."""
    # Fed in pieces, not as one call with a seed: older releases keep the GIL in the functions that hash at once.
    state = xxhash.xxh3_128(data)
    state.update(binding(key, generation))
    return state.digest()


def plain_copy(target: Bytes, source: Bytes, hashed: Bytes, key: bytes, generation: int) -> bytes:
    """`copy_with_checksum` without the extension: piece by piece, so that a core's cache holds a piece while it is read
    twice."""
    state = xxhash.xxh3_128()
    for at in range(0, source.size, _PIECE_BYTES):
        piece = slice(at, at + _PIECE_BYTES)
        np.copyto(target[piece], source[piece])
        state.update(hashed[piece].data)
    state.update(binding(key, generation))
    return state.digest()
