"""Memory in huge pages: zeroed, aligned, apart from each other, and alive as long as a view of it."""

from __future__ import annotations

import gc
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.kernels.cpu.pages import Arena, zeroed


def test_zeroed_is_writable_and_starts_at_a_page() -> None:
    memory = zeroed(5_000_001)
    assert memory.size == 5_000_001 and memory.ctypes.data % 4096 == 0
    assert not memory.any()
    memory[:] = 7
    tail = memory[-5:]
    del memory
    gc.collect()
    assert tail.tolist() == [7] * 5


def test_more_than_there_is() -> None:
    with pytest.raises((MemoryError, OSError, OverflowError)):
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
