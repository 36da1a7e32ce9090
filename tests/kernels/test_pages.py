"""Memory in huge pages: zeroed, aligned, apart from each other, and alive as long as a view of it."""

from __future__ import annotations

import gc
from itertools import pairwise
import os
from pathlib import Path
import re

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.kernels.cpu.pages import HUGE_PAGE_BYTES, Arena, zeroed


def test_zeroed_is_writable_and_starts_at_a_page() -> None:
    memory = zeroed(5_000_001)
    assert memory.size == 5_000_001 and memory.ctypes.data % 4096 == 0
    assert not memory.any()
    memory[:] = 7
    tail = memory[-5:]
    del memory
    gc.collect()
    assert tail.tolist() == [7] * 5


def huge_kib(address: int) -> int | None:
    """How much of the mapping at `address` lies in huge pages; None where the system does not say."""
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    inside = False
    for line in lines:
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1])
    return None


def test_written_pages_are_huge_where_the_system_has_them() -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text(encoding="utf-8"):
        pytest.skip("this system has no transparent huge pages")
    memory = zeroed(16 * HUGE_PAGE_BYTES)
    memory[::4096] = 1
    huge = huge_kib(memory.ctypes.data + 8 * HUGE_PAGE_BYTES)
    assert huge is not None and huge > 0


def test_a_forked_child_writes_to_its_own() -> None:
    memory = zeroed(4096)
    child = os.fork()
    if child == 0:
        memory[0] = 9
        os._exit(0)
    os.waitpid(child, 0)
    assert memory[0] == 0


def test_more_than_there_is() -> None:
    with pytest.raises(MemoryError):
        zeroed(1 << 60)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 1 << 20) | st.integers(30 << 20, 40 << 20), min_size=1, max_size=12))
def test_pieces_do_not_overlap(sizes: list[int]) -> None:
    arena = Arena()
    pieces = [arena.take(size) for size in sizes]
    places = sorted((piece.ctypes.data, piece.size) for piece in pieces)
    assert all(at % 64 == 0 for at, _ in places)
    assert all(at + size <= after for (at, size), (after, _) in pairwise(places))
    for value, piece in enumerate(pieces):
        piece[0] = piece[-1] = value + 1
    assert [int(piece[0]) for piece in pieces] == list(range(1, len(sizes) + 1))
    assert all(piece.dtype == np.uint8 and not piece[1:-1].any() for piece in pieces)
