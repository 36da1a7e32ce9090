"""Who goes first when the device cannot take all that wait: those whose context is still there.

A turn that comes while others wait would otherwise be pushed off the device by them, to be loaded or computed again a
little later: with more agents than room, every turn would be. The order changes only while what waits needs more
blocks than are free, inside a tenant and a priority, and nobody is passed over more often than `max_passed_over`
times; then it stands where it came.
"""

from __future__ import annotations

from samovar.core.board import Board
from samovar.core.state import RequestState, Status

WARM_SHARE = 0.5
"""Of the blocks that a prompt could hit, what must be there."""


def those_behind(board: Board) -> list[RequestState]:
    """Waiting requests that let the warm ones of their tenant and priority go first; none when nobody is warm."""
    if board.num_waiting < 2 or board.num_admitted >= board.config.max_num_seqs:
        return []
    waiting = [state for state in board.queues if state.status is Status.WAITING]
    if sum(board.kv.blocks_for(state.total) for state in waiting) <= board.kv.pool.num_free:
        return []
    cold = [state for state in waiting if not _is_warm(board, state)]
    if len(cold) == len(waiting):
        return []
    return [s for s in cold if not s.preempted and s.passed_over < board.config.max_passed_over]


def passes(state: RequestState, behind: RequestState) -> bool:
    """Whether `state`, admitted now, goes before one that came earlier and stands behind."""
    return (
        behind.seq < state.seq
        and behind.request.tenant == state.request.tenant
        and behind.request.priority == state.request.priority
    )


def _is_warm(board: Board, state: RequestState) -> bool:
    limit = state.hit_limit(board.config.block_tokens)
    return limit > 0 and board.kv.index.match(state.keys, 0, limit) >= WARM_SHARE * limit
