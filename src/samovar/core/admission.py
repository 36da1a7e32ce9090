"""Whether a waiting request can start: what the cache and the tiers have of it, and whether the rest fits."""

from __future__ import annotations

from samovar.core.board import Board, Transfer
from samovar.core.draft import Draft
from samovar.core.events import Miss
from samovar.core.gate import blocks_to_load, load_s, with_probe
from samovar.core.misses import explain
from samovar.core.pace import Pace
from samovar.core.plan import Load
from samovar.core.ports import TierShare
from samovar.core.state import RequestState, Status
from samovar.core.warm_first import passes
from samovar.policy.retention import TurnStart

LEAST_LOAD_DEADLINE_S = 10.0
PROBE_DEADLINE_S = 1.0
"""Of a load that is only to show how fast a tier is, by its estimate in a few hundredths of a second: the request need
not have waited for it."""
LATE_FACTOR = 5.0
"""A load that takes this many times its estimate is late: the request computes what it waited for."""


class Admission:
    __slots__ = ("_board", "pace")

    def __init__(self, board: Board) -> None:
        self._board = board
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

    def offered(self, draft: Draft, state: RequestState, found: int, now: float) -> tuple[TierShare, ...] | None:
        """What to load from the tiers after the first `found` blocks; None to wait for their answer."""
        board = self._board
        limit = state.hit_limit(board.config.block_tokens)
        if board.connector is None or state.load_failed or found >= limit:
            return ()
        match = board.connector.lookup(tuple(state.keys[found:limit]), now)
        if not match.asked:
            state.lookup_deadline_s = None
            return match.shares
        if state.lookup_deadline_s is None:
            state.lookup_deadline_s = now + match.deadline_s
        if now < state.lookup_deadline_s:
            state.held_step = draft.step
            return None
        state.load_failed = True
        return ()

    def worthwhile(self, shares: tuple[TierShare, ...]) -> int:
        """How many blocks of an offer to load: rather than compute them, or to see how fast a tier is."""
        return with_probe(shares, self._wanted(shares))

    def _wanted(self, shares: tuple[TierShare, ...]) -> int:
        board = self._board
        return blocks_to_load(shares, board.config.block_tokens, board.prefill_rate.tokens_per_s)

    def _deadline_s(self, shares: tuple[TierShare, ...], num_blocks: int) -> float:
        """How long the first so many blocks of an offer may take."""
        if not self._wanted(shares):
            return PROBE_DEADLINE_S
        return max(LEAST_LOAD_DEADLINE_S, LATE_FACTOR * load_s(shares, num_blocks))

    def fits(self, draft: Draft, state: RequestState, found: int) -> bool:
        """Whether the whole request has room, of which the first `found` blocks are there."""
        kv = self._board.kv
        # Room for one more block per decoding request, or the admission would be undone by the next step's growth.
        room = kv.available - draft.reserved_blocks - len(self._board.decoding)
        return kv.blocks_for(state.total) - found + kv.num_unused(state.keys, found) <= room

    def admit(
        self, draft: Draft, state: RequestState, found: int, shares: tuple[TierShare, ...], offered: int, now: float
    ) -> None:
        """Give a request that fits its cached blocks, and `offered` ones to load into."""
        board = self._board
        for passed in draft.no_room:
            passed.passed_over += 1
        if draft.behind and state not in draft.behind:
            for passed in draft.behind:
                passed.passed_over += passes(state, passed)
        if state.incarnation == 0:
            board.counters.admitted += 1
            self.pace.admitted(now)
        if not state.hits_checked:
            state.hits_checked = True
            board.counters.declined_load_blocks += sum(share.num_blocks for share in shares) - offered
            self._first_look(state, found, found + offered, now)
        if state.incarnation and not state.first_token_seen:  # what was found before may be gone
            state.num_cached = min(state.num_cached, found * board.config.block_tokens)
        self.adopt(state, found)
        draft.reserved_blocks += board.kv.blocks_for(state.total) - found
        if not (offered and self._load(draft, state, shares, offered, now)):
            board.start_prefill(state)

    def _first_look(self, state: RequestState, found: int, hit: int, now: float) -> None:
        """What a new request means for its conversation, and why no more of it was found."""
        board, index = self._board, self._board.kv.index
        limit = state.hit_limit(board.config.block_tokens)
        reference = b""
        if state.caches:
            request = state.request
            joined = board.streams.join(
                request.tenant,
                request.session_id,
                request.parent_session_id,
                state.keys,
                shared=request.session_is_shared,
            )
            state.stream, reference = joined.stream, joined.reference
            name = joined.stream.name
            board.prefetches.cancel(name)
            board.kv.wanted_again(name)
            for orphans in joined.orphans:
                board.kv.supersede(orphans.keys, orphans.first, orphans.stream)
                if board.connector is not None:
                    board.connector.turn_ended(orphans.stream, orphans.keys, keep=False, now=now)
            state.ceiling = board.ceiling.match(state.keys, limit) * board.config.block_tokens
            board.policy.turn_started(TurnStart(name, joined.stream.parent, limit, hit, request.tenant), now)
        failed = state.load_failed and hit < limit
        state.miss = Miss("failed_load", block=hit) if failed else explain(reference, state.keys, hit, limit, index)

    def adopt(self, state: RequestState, found: int) -> None:
        """Extend the table to the first `found` blocks of the chain, all of which are there."""
        have = len(state.blocks)
        if found <= have:
            return
        board = self._board
        board.kv.adopt(state, board.kv.chain(state.keys, have, found))
        if board.unproven:
            board.unproven.difference_update(state.keys[have:found])
        self.count_cached(state, found - have)

    def count_cached(self, state: RequestState, num_blocks: int) -> None:
        """A request's own blocks that it finds again after a preemption are not cache hits."""
        if not state.first_token_seen and not state.incarnation:
            state.num_cached += num_blocks * self._board.config.block_tokens

    def _load(self, draft: Draft, state: RequestState, shares: tuple[TierShare, ...], offered: int, now: float) -> bool:
        """False when the tiers have nothing any more."""
        board = self._board
        assert board.connector is not None
        first = len(state.blocks)
        keys = tuple(state.keys[first : first + offered])
        transfer = Transfer(True, state.holding, keys, state, state.incarnation, first, state.stream_name, shares)
        place = board.connector.load(board.next_transfer_id, keys, now)
        if not place.slots:
            return False
        keys = transfer.keys = keys[: len(place.slots)]
        blocks = board.kv.take(len(keys), now, state.id)
        state.blocks.extend(blocks)
        draft.reserved_blocks -= len(blocks)
        transfer.deadline_s = now + self._deadline_s(shares, len(keys))
        transfer_id = board.new_transfer(transfer)
        draft.loads.append(Load(transfer_id, 0, keys, tuple(blocks), place.slots, place.generations, place.from_disk))
        board.leave(state)
        board.enter(state, Status.LOADING)
        return True
