"""The rows of a batch: which tokens are whose, and where each row's context lies in the block pool.

Native kernels read a row's block table where it is. For torch's operators a context is cut into *pieces*, once per
batch for all layers. A long run of consecutive blocks is one piece, read through a view; short runs are gathered, at
most `GATHER_TOKENS` at a time, so a cached prefix is never copied as a whole. A piece begins at the first position of
a multi-token chunk, so only pieces from there on need a causal mask, and none ever reaches past the context: what lies
behind it in its last block is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

VIEW_TOKENS = 128
"""A run at least this long is worth an attention call of its own; shorter ones cost less gathered."""
GATHER_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """Positions [start, start + num_tokens): pool slots from `slot` on, or those of `gather` when it is not None."""

    start: int
    num_tokens: int
    slot: int
    gather: Tensor | None = None
    """[num_tokens] int64"""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """`num_tokens` queries from row `first` of the batch on, the first at position `start`."""

    first: int
    num_tokens: int
    start: int
    pieces: tuple[ContextPiece, ...]
    """In order of position, without gaps, from 0 to start + num_tokens."""


@dataclass(frozen=True, slots=True)
class Rows:
    """R requests of a batch, one after the other. Tables are views of whoever owns them: they must stay as they are
    until the step has ended. Building this costs the same however long the contexts are."""

    firsts: NDArray[np.int32]
    """[R]: a row's first token in the batch."""
    counts: NDArray[np.int32]
    """[R]: its tokens in this step, at least one."""
    starts: NDArray[np.int32]
    """[R]: the position of the first of them; the context ends with the last."""
    tables: tuple[NDArray[np.int64], ...]
    """Per row its blocks, at least up to the end of its context."""
    addresses: NDArray[np.int64]
    """[R]: where each table's first entry is in memory."""
    block_tokens: int

    def __len__(self) -> int:
        return len(self.tables)

    def plans(self) -> tuple[RowPlan, ...]:
        return tuple(
            plan_row(first, count, start + count, table, self.block_tokens)
            for first, count, start, table in zip(
                self.firsts.tolist(), self.counts.tolist(), self.starts.tolist(), self.tables, strict=True
            )
        )


def make_rows(
    counts: Sequence[int],
    starts: Sequence[int],
    tables: Sequence[NDArray[np.int64]],
    block_tokens: int,
    addresses: Sequence[int] | None = None,
) -> Rows:
    """`addresses`: where known; asking an array for its own costs a microsecond. Tables are contiguous."""
    sizes = np.array(counts, dtype=np.int32)
    assert all(table.dtype == np.int64 and table.strides == (8,) for table in tables)
    if addresses is None:
        addresses = [table.ctypes.data for table in tables]
    return Rows(
        firsts=np.cumsum(sizes, dtype=np.int32) - sizes,
        counts=sizes,
        starts=np.array(starts, dtype=np.int32),
        tables=tuple(tables),
        addresses=np.array(addresses, dtype=np.int64),
        block_tokens=block_tokens,
    )


def plan_row(first: int, num_tokens: int, context_tokens: int, blocks: NDArray[np.int64], block_tokens: int) -> RowPlan:
    """`blocks` is the row's table: it covers at least the `context_tokens` positions, of which the last `num_tokens`
    are the queries'. Nothing of it is kept: the table may change afterwards."""
    start = context_tokens - num_tokens
    assert num_tokens > 0 and start >= 0 and len(blocks) * block_tokens >= context_tokens
    used = blocks[: -(-context_tokens // block_tokens)]
    border = start if num_tokens > 1 else context_tokens
    pieces: list[ContextPiece] = []
    pending: list[tuple[int, int]] = []
    for low, high in _runs(used, block_tokens, context_tokens, border):
        long = high - low >= VIEW_TOKENS
        if pending and (long or low == border or high - pending[0][0] > GATHER_TOKENS):
            pieces.append(_piece(pending, used, block_tokens))
            pending = []
        if long:
            pieces.append(_piece([(low, high)], used, block_tokens))
        else:
            pending.append((low, high))
    if pending:
        pieces.append(_piece(pending, used, block_tokens))
    return RowPlan(first, num_tokens, start, tuple(pieces))


def _runs(used: NDArray[np.int64], block_tokens: int, context_tokens: int, border: int) -> Iterator[tuple[int, int]]:
    """Ranges of positions that lie side by side in the pool, none across `border` or the end of the context."""
    breaks = np.flatnonzero(np.diff(used) != 1) + 1
    ends = [*(breaks * block_tokens).tolist(), context_tokens]
    low = 0
    for high in ends:
        if low < border < high:
            yield low, border
            low = border
        yield low, high
        low = high


def _piece(runs: list[tuple[int, int]], used: NDArray[np.int64], block_tokens: int) -> ContextPiece:
    low, high = runs[0][0], runs[-1][1]
    if len(runs) == 1:
        block, offset = divmod(low, block_tokens)
        return ContextPiece(low, high - low, int(used[block]) * block_tokens + offset)
    positions = np.arange(low, high, dtype=np.int64)
    slots = used[positions // block_tokens] * block_tokens + positions % block_tokens
    return ContextPiece(low, high - low, -1, torch.from_numpy(slots))
