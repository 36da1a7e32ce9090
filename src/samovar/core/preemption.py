"""Taking the device back from a request: whom, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterable

from samovar.core.board import Board
from samovar.core.state import RequestState, Status


def restore_cost(board: Board, state: RequestState) -> int:
    """Tokens to compute again should the request be preempted: those in blocks that nobody else holds."""
    refs, blocks = board.kv.pool.refs, state.blocks
    low, high = 0, len(blocks)
    while low < high:  # whoever holds a block holds those before it, so the shared blocks lead
        mid = (low + high) // 2
        if refs[blocks[mid]] > 1:
            low = mid + 1
        else:
            high = mid
    return max(0, state.num_computed - low * board.config.block_tokens)


def choose_victim(board: Board) -> RequestState | None:
    """The least important admitted request, among equals the cheapest to restore, then the latest."""
    refs = board.kv.pool.refs

    def candidates() -> Iterable[RequestState]:
        yield from (s for s in board.decoding.values() if s.num_output + s.num_inflight < s.max_tokens)
        if board.num_prefilling:
            yield from (s for s in board.queues if s.status is Status.PREFILLING)

    best: RequestState | None = None
    best_rank: tuple[int, int, int] | None = None
    for state in candidates():
        if not state.blocks or refs[state.blocks[-1]] > 1:
            continue  # nothing to gain
        rank = (state.request.priority, -restore_cost(board, state), state.seq)
        if best_rank is None or rank > best_rank:
            best, best_rank = state, rank
    return best


def preempt(board: Board, state: RequestState) -> None:
    """Send an admitted request back to its queue, ahead of its equals. It keeps every token it has; results of plans in
    flight are dropped and sampled again, to the same tokens, since the random numbers depend on the position only."""
    board.leave(state)
    if state.request.use_prefix_cache and board.config.enable_prefix_caching:
        state.extend_keys(state.num_tokens // board.config.block_tokens, board.config.block_tokens)
    if state.num_sent_blocks:
        board.released.append(state.id)
    state.restore_to = max(state.restore_to, state.num_computed)
    board.kv.let_go(state)
    state.incarnation += 1
    state.num_inflight = 0
    state.last_sampled_in = -1
    state.lookup_deadline_s = None
    state.preempted = True
    board.counters.preemptions += 1
    board.enter(state, Status.WAITING)
