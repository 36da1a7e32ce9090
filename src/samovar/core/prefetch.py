"""Brings a conversation's blocks up to the device before its next turn arrives."""

from __future__ import annotations

from samovar.core.admission import LATE_FACTOR, LEAST_LOAD_DEADLINE_S
from samovar.core.board import Board, Transfer
from samovar.core.draft import Draft
from samovar.core.gate import blocks_to_load
from samovar.core.plan import Load
from samovar.core.state import Holding
from samovar.core.stream import Stream

LEAD_S = 0.5
"""Earlier than the estimate: a load that comes late is worth nothing, one that comes early little less."""


class Prefetcher:
    """Takes over what hints put on the board. A prefetch takes free blocks and evicts what the policy values least; it
    never takes what an admitted request needs, and nobody waits for it but a request that wants the same blocks."""

    __slots__ = ("_board",)

    def __init__(self, board: Board) -> None:
        self._board = board

    def plan(self, draft: Draft, now: float) -> None:
        board = self._board
        while (taken := board.prefetches.take(now)) is not None:
            name, due = taken
            stream = board.streams.get(name)
            if stream is None or stream.running or stream.released:
                continue
            if not self._start(draft, stream, now):
                board.prefetches.look_again(name, due, now)

    def _start(self, draft: Draft, stream: Stream, now: float) -> bool:
        """Whether something is on its way."""
        board, kv = self._board, self._board.kv
        assert board.connector is not None
        keys = stream.keys()
        found = kv.index.match(keys, 0, len(keys))
        if found == len(keys) or keys[found] in board.loading_keys:
            return False
        match = board.connector.lookup(tuple(keys[found:]), now)
        wanted = blocks_to_load(match.shares, board.config.block_tokens, board.prefill_rate.tokens_per_s)
        room = kv.available - draft.reserved_blocks - len(board.decoding) - kv.num_unused(keys, found)
        count = min(wanted, room)
        if count < wanted:
            board.connector.wanted(tuple(keys[found:]), now)
        if count <= 0:
            return False
        head = kv.chain(keys, 0, found)
        kv.index.hold(head)
        holding = Holding()
        holding.blocks += head
        chosen = tuple(keys[found : found + count])
        transfer = Transfer(True, holding, chosen, first=found, stream=stream.name, shares=match.shares)
        place = board.connector.load(board.next_transfer_id, chosen, now)
        if place.slots:
            chosen = transfer.keys = chosen[: len(place.slots)]
            blocks = kv.take(len(chosen), now, None)
            holding.blocks += blocks
            seconds = sum(share.seconds for share in match.shares)
            transfer.deadline_s = now + max(LEAST_LOAD_DEADLINE_S, LATE_FACTOR * seconds)
            transfer_id = board.new_transfer(transfer)
            draft.loads.append(
                Load(transfer_id, 0, chosen, tuple(blocks), place.slots, place.generations, place.from_disk)
            )
        kv.fence(holding, stream.name)
        return bool(place.slots)


def schedule_prefetch(board: Board, stream: Stream, due_s: float) -> None:
    """The stream's next turn is expected at `due_s`."""
    if board.connector is None:
        return
    keys = stream.keys()
    match = board.connector.lookup(tuple(keys), due_s) if keys else None
    lead_s = sum(share.seconds for share in match.shares) * 2 + LEAD_S if match is not None else LEAD_S
    board.prefetches.expect(stream.name, stream.tenant, due_s - lead_s)
