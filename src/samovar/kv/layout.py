"""A block of the device pool as contiguous bytes, and back.

On the device a block is one piece of every array (keys and values of each layer); in a tier it is those pieces one
after the other, in the arrays' order, without padding. Nothing here knows what the bytes mean: the arrays are whatever
the runner's pool consists of, and only the same order, shapes and dtypes can read them again (`fingerprint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from samovar.base.keys import digest
from samovar.kernels.cpu.native_library import native_library

_VERSION = b"samovar kv layout 1"

Bytes = NDArray[np.uint8]


class _Copies(Protocol):
    def gather(self, blocks: NDArray[np.int64], memory: Bytes, offsets: NDArray[np.int64]) -> None: ...

    def scatter(self, blocks: NDArray[np.int64], memory: Bytes, offsets: NDArray[np.int64]) -> None: ...


class BlockLayout:
    """Keeps the arrays alive. Calls from several threads may run at once, and the GIL is released while bytes move."""

    def __init__(self, arrays: Sequence[NDArray[Any]], *, native: bool = True) -> None:
        """`arrays`: of C order, the block is their first dimension. A piece must be contiguous, the distance between
        two blocks is free. A pool of torch tensors gives its numpy views, bfloat16 ones viewed as int16. Raises
        ValueError for anything else. `native`: use the extension where it is installed."""
        pieces = [_pieces(array, len(arrays[0])) for array in arrays]
        self.num_blocks = len(arrays[0])
        self.block_bytes = sum(piece.shape[1] for piece in pieces)
        self.fingerprint = digest((_VERSION, *(f"{a.dtype.str} {a.shape[1:]}".encode() for a in arrays)))
        """16 bytes. The number of blocks is not in it: a pool of another size reads the same bytes."""
        self.is_native = native and native_library() is not None
        self._copies: _Copies = _native(arrays) if self.is_native else _PlainCopies(pieces)

    def gather(self, blocks: Sequence[int], memory: Bytes, offsets: Sequence[int]) -> None:
        """Copies block `blocks[i]` of the device to `memory[offsets[i]:]`, `block_bytes` of it. Raises ValueError,
        before anything is written, when a block or an offset is out of range."""
        self._copies.gather(np.array(blocks, np.int64), memory, np.array(offsets, np.int64))

    def scatter(self, blocks: Sequence[int], memory: Bytes, offsets: Sequence[int]) -> None:
        """The other way."""
        self._copies.scatter(np.array(blocks, np.int64), memory, np.array(offsets, np.int64))


def _pieces(array: NDArray[Any], num_blocks: int) -> Bytes:
    """The array as [num_blocks, bytes of a piece]: a view."""
    if array.ndim < 2 or len(array) != num_blocks or array.size == 0:
        raise ValueError(f"an array of shape {array.shape} holds no {num_blocks} blocks")
    if not array.flags.writeable:
        raise ValueError("an array of the pool cannot be written")
    if not array[0].flags.c_contiguous or (num_blocks > 1 and array.strides[0] < array[0].nbytes):
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides}: a piece is not contiguous")
    flat = np.lib.stride_tricks.as_strided(
        array, (num_blocks, array[0].size), (array.strides[0], array.itemsize), writeable=True
    )
    return flat.view(np.uint8)


def _native(arrays: Sequence[NDArray[Any]]) -> _Copies:
    # An optional dependency: the extension is there only where a compiler was.
    from samovar.kernels.cpu._native import Blocks

    return Blocks(list(arrays))


class _PlainCopies:
    """The same in numpy."""

    def __init__(self, pieces: Sequence[Bytes]) -> None:
        self._pieces = pieces
        self._num_blocks = len(pieces[0])
        self._block_bytes = sum(piece.shape[1] for piece in pieces)

    def gather(self, blocks: NDArray[np.int64], memory: Bytes, offsets: NDArray[np.int64]) -> None:
        for block, at in self._places(blocks, memory, offsets):
            for piece in self._pieces:
                num_bytes = piece.shape[1]
                memory[at : at + num_bytes] = piece[block]
                at += num_bytes

    def scatter(self, blocks: NDArray[np.int64], memory: Bytes, offsets: NDArray[np.int64]) -> None:
        for block, at in self._places(blocks, memory, offsets):
            for piece in self._pieces:
                num_bytes = piece.shape[1]
                piece[block] = memory[at : at + num_bytes]
                at += num_bytes

    def _places(self, blocks: NDArray[np.int64], memory: Bytes, offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
        places = list(zip(blocks.tolist(), offsets.tolist(), strict=True))
        most = memory.size - self._block_bytes
        for block, at in places:
            if not 0 <= block < self._num_blocks or not 0 <= at <= most:
                raise ValueError(f"block {block} of {self._num_blocks}, at {at} of at most {most}")
        return places
