"""Zeroed memory in huge pages, for what is streamed through at every step: weights and KV.

A core that reads one array after the other spends much of its time on address translation, inside a virtual machine
twice over: on a two-core guest, reading 512 MB went from 20 to 29 GB/s with pages of 2 MB. Where the system has no huge
pages to give, ordinary ones come instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

HUGE_PAGE_BYTES = 2 << 20
_CHUNK_BYTES = 32 << 20
_LINE_BYTES = 64


def zeroed(num_bytes: int) -> NDArray[np.uint8]:
    """`num_bytes` > 0 of zeros on a page boundary. Address space until it is first written, then whole pages; given
    back when the last view is gone. Raises MemoryError when there is not so much address space."""
    try:
        # Private: shared anonymous memory is a file to the system, and those have no huge pages as a rule.
        mapping = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{num_bytes} bytes: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Refused by kernels without huge pages.
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, dtype=np.uint8)


_MADV_POPULATE_WRITE = 23
"""Linux 5.14; Python has no name for it yet."""


def populate(memory: NDArray[np.generic], start_bytes: int, stop_bytes: int) -> bool:
    """Brings the pages of this part of `memory` in, as a first write would, and changes nothing in them: safe beside
    whoever reads and writes there. Lets other threads run meanwhile. False where the system cannot, or has no memory
    left: the first write does it then."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    base = memory.ctypes.data
    # The system wants whole pages; those at the edges are the mapping's too.
    start = (base + start_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    length = -(-(base + stop_bytes - start) // mmap.PAGESIZE) * mmap.PAGESIZE
    madvise = ctypes.CDLL(None).madvise
    return bool(madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_POPULATE_WRITE) == 0)


class Arena:
    """Hands out pieces of huge pages one after the other: many matrices are smaller than a page. A piece keeps its
    neighbours alive."""

    def __init__(self) -> None:
        self._chunk: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._used = 0

    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """Zeros on a cache line's boundary."""
        if num_bytes > self._chunk.size - self._used:
            # Whole pages, so that the end of a large matrix leaves room for the next.
            wanted = -(-max(num_bytes, _CHUNK_BYTES) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
            self._chunk, self._used = zeroed(wanted), 0
        piece = self._chunk[self._used : self._used + num_bytes]
        self._used += -(-num_bytes // _LINE_BYTES) * _LINE_BYTES
        return piece
