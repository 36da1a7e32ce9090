"""Memory that O_DIRECT can read into."""

from __future__ import annotations

import mmap


def aligned_buffer(num_bytes: int) -> memoryview:
    """Zeros at a multiple of 4096; lives as long as a view of it does."""
    size = max(num_bytes, 1)
    return memoryview(mmap.mmap(-1, size))[:num_bytes]
