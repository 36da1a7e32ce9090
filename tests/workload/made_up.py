"""Small random loads: prompts that grow, are cut, and branch off one another."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
import numpy as np

from samovar.workload.session import SessionTree, Stream, Turn, frozen_ids
from tests.workload.brute_force import Access

BLOCK = 4


@st.composite
def loads(draw: st.DrawFn, most: int = 14, longest: int = 6, words: int = 3) -> list[Access]:
    """Prompts as words over a small alphabet; a prefix's id is its number among all prefixes seen."""
    names: dict[tuple[int, ...], int] = {}
    accesses = []
    now = 0.0
    for _ in range(draw(st.integers(1, most))):
        now += draw(st.sampled_from((0.0, 1.0, 2.0, 5.0)))
        word = draw(st.lists(st.integers(0, words - 1), max_size=longest))
        ids = tuple(names.setdefault(tuple(word[: depth + 1]), len(names)) for depth in range(len(word)))
        tail = draw(st.integers(0, BLOCK - 1)) if draw(st.booleans()) else -draw(st.integers(0, min(1, len(ids))))
        accesses.append(Access(now, now + draw(st.sampled_from((0.0, 0.5, 3.0))), ids, max(0, len(ids) * BLOCK + tail)))
    return accesses


def session_of(accesses: Sequence[Access], name: str = "made-up", block: int = BLOCK) -> SessionTree:
    turns = tuple(
        Turn(access.start_s, access.end_s, access.tokens, 1, frozen_ids(np.array(access.ids, dtype=np.int64)))
        for access in accesses
    )
    return SessionTree(name, block, (Stream("main", "main", turns),), namespace=name)


def turn(start_s: float, end_s: float, ids: Sequence[int], *, tokens: int | None = None, model: str = "m") -> Turn:
    length = len(ids) * BLOCK if tokens is None else tokens
    return Turn(start_s, end_s, length, 1, frozen_ids(np.array(ids, dtype=np.int64)), model=model)
