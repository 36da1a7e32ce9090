"""What becomes of a request when a load or store ended."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.core.admission import Admission
from samovar.core.board import Board, Transfer
from samovar.core.events import Miss
from samovar.core.plan import TransferDone
from samovar.core.prefix_index import COMPUTED
from samovar.core.state import RequestState, Status


def transferred(board: Board, admission: Admission, done: Sequence[TransferDone], now: float) -> None:
    """Reports of transfers nobody knows (any more) are ignored."""
    for report in done:
        transfer = board.transfers.pop(report.transfer_id, None)
        if transfer is None:
            continue
        transfer.holding.num_transfers -= 1
        lost = [i for i in report.failed if 0 <= i < len(transfer.keys)]
        failed = len(lost)
        if transfer.is_load:
            board.loading_keys.subtract(transfer.keys)
            for key in transfer.keys:
                if not board.loading_keys[key]:
                    del board.loading_keys[key]
            board.counters.failed_load_blocks += failed
            board.counters.loaded_blocks += len(transfer.keys) - failed
            state = transfer.state
            if state is not None and board.is_current(state, transfer.incarnation):
                arrived = min(lost, default=len(transfer.keys))
                _landed(board, admission, state, transfer, arrived, now)
        else:
            board.counters.stored_blocks += len(transfer.keys) - failed
    board.sweep(now)


def _landed(
    board: Board, admission: Admission, state: RequestState, transfer: Transfer, arrived: int, now: float
) -> None:
    """The first `arrived` blocks of a load are good: they become findable and the request goes on from there."""
    index, blocks = board.kv.index, state.blocks
    for i in range(arrived):
        at = transfer.first + i
        theirs = index.get(transfer.keys[i])
        if theirs is None:
            index.insert(transfer.keys[i], blocks[at], blocks[at - 1] if at else None, COMPUTED, state.stream)
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
    state.num_loaded += arrived * board.config.block_tokens
    if arrived < len(transfer.keys):
        state.load_failed = True
        state.miss = Miss("failed_load", block=end)
    board.leave(state)
    board.enter(state, Status.PREFILLING)
