"""Arranges what a commit writes so that it can go past the page cache: whole pages, from addresses at a page's
boundary. Payloads that lie so go from where they are; headers, ends of payloads and small payloads are copied together.

Past the cache a commit costs the disk's time alone; through it, also a copy, the pages for it, and giving them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from samovar.pool.disk.files import MOST_BUFFERS, Files, write_all
from samovar.pool.disk.format import BLOCK_BYTES, padded
from samovar.pool.disk.memory import aligned_buffer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MOST_COPIED_BYTES = 64 << 10
"""Of one buffer. With a larger one that does not lie right the commit goes through the page cache."""


class DirectPages:
    """Memory for what is copied; one commit at a time."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")

    def arranged(self, buffers: Sequence[ReadableBuffer]) -> list[memoryview] | None:
        """The same bytes, which are whole pages in all; None when too much would have to be copied."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        whole = [len(view) // BLOCK_BYTES * BLOCK_BYTES if _lies_right(view) else 0 for view in views]
        if any(len(view) - taken > MOST_COPIED_BYTES for view, taken in zip(views, whole, strict=True)):
            return None
        self._reserve(sum(len(view) - taken for view, taken in zip(views, whole, strict=True)))
        parts: list[memoryview] = []
        begin = end = 0
        for view, taken in zip(views, whole, strict=True):
            if taken:
                assert end % BLOCK_BYTES == 0, "a payload does not begin at a page of the file"
                parts += [self._memory[begin:end]] if end > begin else []
                begin = end
                parts.append(view[:taken])
            self._memory[end : end + len(view) - taken] = view[taken:]
            end += len(view) - taken
        assert end % BLOCK_BYTES == 0, "a commit does not end at a page of the file"
        return parts + ([self._memory[begin:end]] if end > begin else [])

    def _reserve(self, num_bytes: int) -> None:
        if len(self._memory) < num_bytes:
            self._memory = aligned_buffer(padded(num_bytes))


def write_direct(files: Files, direct_fd: int, cached_fd: int, buffers: Sequence[memoryview], offset: int) -> None:
    """Every byte. What the direct descriptor does not take, or takes a part of, goes through the page cache. Raises
    OSError."""
    rest = list(buffers)
    while rest:
        group = rest[:MOST_BUFFERS]
        wanted = sum(len(view) for view in group)
        written = files.write(direct_fd, group, offset)
        offset += written
        if written < wanted:
            rest = _after(rest, written)
            break
        rest = rest[MOST_BUFFERS:]
    if rest:
        write_all(files, cached_fd, rest, offset)


def _after(buffers: Sequence[memoryview], num_bytes: int) -> list[memoryview]:
    rest: list[memoryview] = []
    for view in buffers:
        taken = min(num_bytes, len(view))
        num_bytes -= taken
        if taken < len(view):
            rest.append(view[taken:])
    return rest


def _lies_right(view: memoryview) -> bool:
    """Small ones are copied wherever they lie: fewer buffers for the system."""
    if len(view) <= BLOCK_BYTES:
        return False
    return bool(np.frombuffer(view, np.uint8).ctypes.data % BLOCK_BYTES == 0)
