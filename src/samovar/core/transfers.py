"""What becomes of a request, and of blocks, when a load or store ended, or does not end."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.core.admission import Admission
from samovar.core.board import Board, Transfer
from samovar.core.events import Miss
from samovar.core.plan import TransferDone
from samovar.core.prefix_index import COMPUTED
from samovar.core.state import RequestState, Status
from samovar.core.verify import compared, is_due, set_aside


def transferred(board: Board, admission: Admission, done: Sequence[TransferDone], now: float) -> None:
    """Reports of transfers nobody knows (any more) are ignored; negative ids are the connector's own."""
    for report in done:
        transfer = board.transfers.pop(report.transfer_id, None)
        is_tiers_own = report.transfer_id < 0 if transfer is None else not transfer.compares
        if board.connector is not None and is_tiers_own:
            board.connector.transferred(report, now)
        if transfer is None:
            continue
        transfer.holding.num_transfers -= 1
        lost = [i for i in report.failed if 0 <= i < len(transfer.keys)]
        if transfer.compares:
            compared(board, transfer, lost, now)
        elif transfer.is_load:
            _loaded(board, admission, transfer, report, lost, now)
        else:
            board.counters.stored_blocks += len(transfer.keys) - len(lost)
    board.sweep(now)


def _loaded(
    board: Board, admission: Admission, transfer: Transfer, report: TransferDone, lost: list[int], now: float
) -> None:
    board.stop_waiting(transfer)
    arrived = min(lost, default=len(transfer.keys))
    board.counters.loaded_blocks += len(transfer.keys) - len(lost)
    if transfer.state is None:
        board.counters.prefetched_blocks += len(transfer.keys) - len(lost)
    if lost and not transfer.late:
        _count_failed(board, report.reason or "unknown", len(lost))
    board.counters.saved_s -= report.seconds
    state = transfer.state
    if state is not None and board.is_current(state, transfer.incarnation):
        _landed(board, admission, state, transfer, arrived, now)
    else:
        _keep(board, transfer, arrived)


def _landed(
    board: Board, admission: Admission, state: RequestState, transfer: Transfer, arrived: int, now: float
) -> None:
    """The first `arrived` blocks of a load are good: they become findable and the request goes on from there."""
    index, blocks = board.kv.index, state.blocks
    if is_due(board, arrived):
        set_aside(board, state, transfer, arrived)
        arrived = 0
    for i in range(arrived):
        at = transfer.first + i
        theirs = index.get(transfer.keys[i])
        if theirs is None:
            index.insert(transfer.keys[i], blocks[at], blocks[at - 1] if at else None, COMPUTED, state.stream_name)
        else:
            # Computed by someone else meanwhile. The runner has not seen this table, so the swap needs no redirect.
            index.hold([theirs])
            index.release([blocks[at]], now, "")
            blocks[at] = theirs
    end = transfer.first + arrived
    index.release(blocks[end:], now, "")
    del blocks[end:]
    state.num_indexed = end
    state.num_computed = state.num_applied = end * board.config.block_tokens
    admission.count_cached(state, arrived)
    _count_loaded(board, state, transfer, arrived)
    if arrived < len(transfer.keys) and not state.load_failed:
        state.load_failed = True
        state.miss = Miss("failed_load", block=end)
    board.leave(state)
    board.enter(state, Status.PREFILLING)


def _count_loaded(board: Board, state: RequestState, transfer: Transfer, arrived: int) -> None:
    tokens = board.config.block_tokens
    state.num_loaded += arrived * tokens
    for share in transfer.shares:
        count = min(arrived, share.num_blocks)
        if count:
            state.loaded_by_tier[share.tier] = state.loaded_by_tier.get(share.tier, 0) + count * tokens
        arrived -= count


def _keep(board: Board, transfer: Transfer, arrived: int) -> None:
    """A load that no request waits for: a prefetch, or one whose request went away. What arrived stays, unused."""
    index, blocks = board.kv.index, transfer.holding.blocks
    parent = blocks[transfer.first - 1] if transfer.first else None
    for i in range(arrived):
        key, block = transfer.keys[i], blocks[transfer.first + i]
        theirs = index.get(key)
        if theirs is not None:
            parent = theirs
            continue
        if parent is not None and index.key_of(parent) is None:
            board.counters.wasted_load_blocks += arrived - i
            return
        index.insert(key, block, parent, COMPUTED, transfer.stream)
        board.unproven.add(key)
        parent = block


def _count_failed(board: Board, reason: str, num_blocks: int) -> None:
    board.counters.failed_load_blocks += num_blocks
    board.counters.failed_load_reasons[reason] += num_blocks


def give_up_late_loads(board: Board, now: float) -> None:
    """Requests whose load is overdue compute what they waited for, and so do those that wait for somebody else's load,
    or for a prefetch. The blocks stay untouched until it is reported."""
    if not board.loading_keys:
        return
    late = [t for t in board.transfers.values() if t.is_load and not t.given_up and t.deadline_s <= now]
    for transfer in late:
        board.stop_waiting(transfer)
        transfer.late = True
        _count_failed(board, "late", len(transfer.keys))
        for waiting in board.queues:
            if waiting.status is Status.WAITING and waiting.wants(transfer.keys[0], transfer.first):
                waiting.load_failed = True  # to ask for the same again would be to wait as long again
        state = transfer.state
        if state is None or not board.is_current(state, transfer.incarnation):
            continue
        board.leave(state)
        board.kv.let_go(state)
        state.incarnation += 1
        state.preempted = True  # it was on the device before: it goes ahead of its equals
        state.load_failed = True
        state.miss = Miss("failed_load", block=transfer.first)
        board.enter(state, Status.WAITING)
