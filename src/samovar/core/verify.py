"""`--kv-verify N`: one load in N is computed again and compared with what the tier gave.

The request forgets that its load arrived and computes those positions into blocks of its own; the loaded ones are held
aside. Once both are there a plan compares them byte for byte. It costs a prefill and proves the whole way: what was
stored, kept, read and put in place. Prefetches are not verified: nobody computes what they bring.
"""

from __future__ import annotations

from samovar.core.board import Board, Suspect, Transfer
from samovar.core.plan import Compare
from samovar.core.state import Holding, RequestState


def is_due(board: Board, arrived: int) -> bool:
    """Whether the load of `arrived` blocks that just ended is one to verify, and both copies have room."""
    if not board.config.kv_verify or not arrived:
        return False
    board.num_loads += 1
    if board.num_loads % board.config.kv_verify:
        return False
    return board.kv.available - board.reserved_blocks() - len(board.decoding) >= arrived


def set_aside(board: Board, state: RequestState, transfer: Transfer, arrived: int) -> None:
    """Take the `arrived` blocks of a load out of the request's table; it computes them as if nothing had come."""
    holding = Holding()
    holding.blocks = state.blocks[transfer.first : transfer.first + arrived]
    holding.num_transfers = 1  # nothing moves, but neither may they be reused
    del state.blocks[transfer.first : transfer.first + arrived]
    board.kv.fence(holding, "")
    board.suspects.append(Suspect(state, state.incarnation, transfer.first, transfer.keys[:arrived], holding))
    state.load_failed = True


def plan_comparisons(board: Board) -> tuple[Compare, ...]:
    """For the next plan: of every suspect whose blocks are computed by now. Whose request went away is let go."""
    if not (board.suspects or board.compares):
        return ()
    waiting: list[Suspect] = []
    for suspect in board.suspects:
        if not board.is_current(suspect.state, suspect.incarnation):
            suspect.holding.num_transfers = 0
        elif _is_computed(board, suspect):
            _compare(board, suspect)
        else:
            waiting.append(suspect)
    compares, board.compares = tuple(board.compares), []
    board.suspects = waiting
    return compares


def compare_before_end(board: Board, state: RequestState) -> None:
    """A request is about to let go of its blocks: what it has computed is compared all the same."""
    if not board.suspects:
        return
    due = [s for s in board.suspects if s.state is state and s.incarnation == state.incarnation]
    for suspect in due:
        if _is_computed(board, suspect):
            board.suspects.remove(suspect)
            _compare(board, suspect)


def _is_computed(board: Board, suspect: Suspect) -> bool:
    return suspect.state.num_applied >= (suspect.first + len(suspect.keys)) * board.config.block_tokens


def _compare(board: Board, suspect: Suspect) -> None:
    """Both sides stay as they are until the comparison is reported."""
    state, end = suspect.state, suspect.first + len(suspect.keys)
    suspect.holding.num_transfers = 0
    mine = Holding()
    # With all before them: whoever holds a block holds its chain, so that what nobody holds can be evicted.
    mine.blocks = state.blocks[:end] + suspect.holding.blocks
    board.kv.index.hold(mine.blocks)
    transfer_id = board.new_transfer(Transfer(False, mine, suspect.keys, compares=True))
    board.kv.fence(mine, state.stream_name)
    board.compares.append(
        Compare(transfer_id, 0, tuple(state.blocks[suspect.first : end]), tuple(suspect.holding.blocks))
    )


def compared(board: Board, transfer: Transfer, differing: list[int], now: float) -> None:
    board.counters.verified_blocks += len(transfer.keys)
    if differing:
        board.counters.differing_blocks += len(differing)
        if board.connector is not None:
            board.connector.distrust(transfer.keys[differing[0] :], now)
