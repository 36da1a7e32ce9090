"""Memory that O_DIRECT can read into."""

from __future__ import annotations

import mmap

import numpy as np

from samovar.pool.disk.format import BLOCK_BYTES


def aligned_buffer(num_bytes: int) -> memoryview:
    """Zeros at a multiple of 4096; lives as long as a view of it does."""
    size = max(num_bytes, 1)
    return memoryview(mmap.mmap(-1, size))[:num_bytes]


def is_aligned(buffer: memoryview) -> bool:
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address % BLOCK_BYTES == 0
