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
    """Of the tenant that holds most of the device: the least important request, among equals the cheapest to restore,
    then the latest. Priority is a client's word, so it counts among its own tenant's requests only."""
    refs = board.kv.pool.refs

    def candidates() -> Iterable[RequestState]:
        yield from (s for s in board.decoding.values() if s.wants_more)
        if board.num_prefilling:
            yield from (s for s in board.queues if s.status is Status.PREFILLING)

    # Without a block of its own there is nothing to gain from a request.
    tenants: dict[str, list[RequestState]] = {}
    for state in candidates():
        if state.blocks and refs[state.blocks[-1]] == 1:
            tenants.setdefault(state.request.tenant, []).append(state)
    if not tenants:
        return None
    largest = max(tenants.values(), key=lambda states: sum(len(state.blocks) for state in states))
    return max(largest, key=lambda state: (state.request.priority, -restore_cost(board, state), state.seq))


def preempt(board: Board, state: RequestState) -> None:
    """Send an admitted request back to its queue, ahead of its equals. It keeps every token it has; results of plans in
    flight are dropped and sampled again, to the same tokens, since the random numbers depend on the position only."""
    board.leave(state)
    if state.caches:
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
