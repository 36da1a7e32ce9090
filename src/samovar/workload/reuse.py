"""Where the blocks of every prompt were last used: all that cache curves need, without looking at single blocks again.

A prompt falls into *pieces*: stretches of blocks that the same earlier call used last. Since ids are prefix-chained,
whoever uses a block uses all before it, so the calls named by the pieces of a prompt get older with depth, and most
prompts have one piece or two. A day of traces with a hundred million blocks has some hundred thousand pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from samovar.workload.session import BlockIds

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reuse:
    """Pieces by call and depth. Call `call[i]` finds its blocks [start[i], stop[i]) as call `source[i]` left them.
    What a call has behind its last piece was never used before."""

    call: Ints
    source: Ints
    start: Ints
    stop: Ints
    hit_blocks: Ints
    """Per call: blocks used before, always a prefix of its prompt."""
    new_blocks: int
    """Distinct blocks of all calls."""
    unchained_blocks: int
    """Blocks that contradict the chaining of ids (used before, but not what precedes them); they count as new."""


def find_reuse(prompts: Sequence[BlockIds]) -> Reuse:
    """`prompts`: the ids of each call, one namespace, by start time."""
    numbered, num_ids = _dense(prompts)
    last = np.full(num_ids, -1, dtype=np.int64)
    pieces: list[tuple[int, int, int, int]] = []
    hit_blocks = np.zeros(len(prompts), dtype=np.int64)
    unchained = 0
    for index, ids in enumerate(numbered):
        sources = last[ids]
        last[ids] = index
        seen = len(sources) if len(sources) == 0 or sources.min() >= 0 else int(np.argmax(sources < 0))
        unchained += int(np.count_nonzero(sources[seen:] >= 0))
        hit_blocks[index] = seen
        if not seen:
            continue
        sources = sources[:seen]
        rising = int(np.count_nonzero(sources[1:] > sources[:-1]))
        if rising:
            unchained += rising
            sources = np.minimum.accumulate(sources)
        edges = [0, *(np.flatnonzero(sources[1:] != sources[:-1]) + 1).tolist(), seen]
        pieces += [(index, int(sources[a]), a, b) for a, b in pairwise(edges)]
    table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
    total = sum(len(ids) for ids in prompts)
    new = int(total - hit_blocks.sum())
    return Reuse(table[:, 0], table[:, 1], table[:, 2], table[:, 3], hit_blocks, new, unchained)


def _dense(prompts: Sequence[BlockIds]) -> tuple[Sequence[BlockIds], int]:
    """Ids as indices of an array that is not much longer than needed."""
    filled = [ids for ids in prompts if len(ids)]
    if not filled:
        return prompts, 0
    total = sum(len(ids) for ids in filled)
    highest = max(int(ids.max()) for ids in filled)
    if min(int(ids.min()) for ids in filled) >= 0 and highest <= 4 * total + 1024:
        return prompts, highest + 1
    names, numbers = np.unique(np.concatenate(filled), return_inverse=True)
    cuts = np.cumsum([len(ids) for ids in prompts])[:-1]
    return np.split(numbers.astype(np.int64), cuts), len(names)
