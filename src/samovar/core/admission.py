"""Whether a waiting request can start: what the cache has of it, and whether the rest fits."""

from __future__ import annotations

from samovar.base.ids import TransferId
from samovar.core.board import Board, Transfer
from samovar.core.draft import Draft
from samovar.core.pace import Pace
from samovar.core.plan import Load
from samovar.core.ports import Connector
from samovar.core.state import RequestState, Status


class Admission:
    __slots__ = ("_board", "_connector", "pace")

    def __init__(self, board: Board, connector: Connector | None) -> None:
        self._board = board
        self._connector = connector
        self.pace = Pace()

    def find(self, draft: Draft, state: RequestState) -> int | None:
        """Blocks of the table that are there for the request now; None to hold it back for this plan.

        Held: its next block is being filled by this very plan, or loaded from a tier, for someone else.
        """
        board = self._board
        limit = state.hit_limit(board.config.block_tokens)
        found, held = board.kv.find(state.keys, state.num_computed // board.config.block_tokens, limit, draft.step)
        if not held and found < limit and board.loading_keys and state.keys[found] in board.loading_keys:
            held = not state.load_failed
        if held:
            state.held_step = draft.step
            return None
        return found

    def offered(self, draft: Draft, state: RequestState, found: int, now: float) -> int | None:
        """Blocks a tier could load after the `found` ones; None to wait for its answer."""
        limit = state.hit_limit(self._board.config.block_tokens)
        if self._connector is None or state.load_failed or found >= limit:
            return 0
        match = self._connector.lookup(tuple(state.keys[found:limit]), now)
        if not match.asked:
            state.lookup_deadline_s = None
            state.tier = match.tier
            return min(match.num_blocks, limit - found)
        if state.lookup_deadline_s is None:
            state.lookup_deadline_s = now + match.seconds
        if now < state.lookup_deadline_s:
            state.held_step = draft.step
            return None
        state.load_failed = True
        return 0

    def admit(self, draft: Draft, state: RequestState, found: int, offered: int, now: float) -> bool:
        """Give the request its cached blocks, and those to load into; False if the whole of it would not fit."""
        board, kv = self._board, self._board.kv
        need = kv.blocks_for(state.total) - found
        # Room for one more block per decoding request, or the admission would be undone by the next step's growth.
        room = kv.available - draft.reserved_blocks - len(board.decoding)
        if need + kv.num_unused(state.keys, found) > room:
            draft.no_room.append(state)
            return False
        for passed in draft.no_room:
            passed.passed_over += 1
        if state.incarnation == 0:
            board.counters.admitted += 1
            self.pace.admitted(now)
        if not state.hits_checked:
            state.hits_checked = True
            limit = state.hit_limit(board.config.block_tokens)
            state.miss = board.sessions.explain(state.stream, state.keys, found + offered, limit, kv.index)
        if state.incarnation and not state.first_token_seen:  # what was found before may be gone
            state.num_cached = min(state.num_cached, found * board.config.block_tokens)
        self.adopt(state, found)
        draft.reserved_blocks += need
        if offered:
            self._load(draft, state, offered, now)
        else:
            board.start_prefill(state)
        return True

    def adopt(self, state: RequestState, found: int) -> None:
        """Extend the table to the first `found` blocks of the chain, all of which are there."""
        have = len(state.blocks)
        if found <= have:
            return
        self._board.kv.adopt(state, self._board.kv.chain(state.keys, have, found))
        self.count_cached(state, found - have)

    def count_cached(self, state: RequestState, num_blocks: int) -> None:
        """A request's own blocks that it finds again after a preemption are not cache hits."""
        if not state.first_token_seen and not state.incarnation:
            state.num_cached += num_blocks * self._board.config.block_tokens

    def _load(self, draft: Draft, state: RequestState, offered: int, now: float) -> None:
        board = self._board
        first = len(state.blocks)
        keys = tuple(state.keys[first : first + offered])
        blocks = board.kv.take(offered, now, state.id)
        state.blocks.extend(blocks)
        draft.reserved_blocks -= offered
        transfer_id = TransferId(board.next_transfer)
        board.next_transfer += 1
        state.holding.num_transfers += 1
        board.transfers[transfer_id] = Transfer(True, state.holding, keys, state, state.incarnation, first)
        board.loading_keys.update(keys)
        draft.loads.append(Load(transfer_id, 0, keys, tuple(blocks)))
        board.leave(state)
        board.enter(state, Status.LOADING)
