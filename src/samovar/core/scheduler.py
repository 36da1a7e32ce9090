"""Writes the next plan: decodes first, then prefills with what is left of the budget.

There is no prefill phase: every request catches up `num_computed` to the tokens it has. The rules and their reasons
are in docs/architecture.md, "Scheduling".
"""

from __future__ import annotations

from collections.abc import Sequence

from samovar.core.admission import Admission
from samovar.core.board import Board
from samovar.core.cadence import PrefillCadence
from samovar.core.draft import Draft, Grant
from samovar.core.plan import Gate, StepPlan
from samovar.core.preemption import choose_victim, preempt
from samovar.core.prefetch import Prefetcher
from samovar.core.state import RequestState, Status
from samovar.core.steady import advance, steady_rounds
from samovar.core.transfers import give_up_late_loads
from samovar.core.verify import plan_comparisons
from samovar.core.warm_first import those_behind


class Scheduler:
    __slots__ = ("_admission", "_board", "_cadence", "_prefetcher")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._admission = Admission(board)
        self._prefetcher = Prefetcher(board)
        self._cadence = PrefillCadence(
            board.config.prefill_schedule_interval, guarded=board.config.prefill_capacity_guard
        )

    @property
    def admission(self) -> Admission:
        return self._admission

    def plan(self, now: float, gate: Gate | None) -> StepPlan | None:
        board = self._board
        if len(board.inflight) >= board.config.depth:
            return None
        board.planned_s = now
        give_up_late_loads(board, now)
        board.sweep(now)
        draft = Draft(board.next_step, board.config.max_num_batched_tokens, 0)
        self._make_room(now)
        self._plan_decodes(draft, now)
        if len(board.queues) or board.loading:
            draft.reserved_blocks = board.reserved_blocks()
        deferred = self._cadence.defers(gate, any_decode=bool(draft.chunks))
        self._plan_prefills(draft, now, deferred)
        if draft.chunks:
            board.counters.steps += 1
            board.counters.step_tokens += sum(chunk.num_tokens for chunk in draft.chunks)
            board.counters.prefill_steps += draft.had_prefill
            drained = deferred or not self._undrained(draft)
            self._cadence.planned(deferred=deferred, had_prefill=draft.had_prefill, drained=drained)
        if board.connector is not None:
            self._prefetcher.plan(draft, now)
            draft.moves = tuple(board.connector.moves(now))
            draft.compares = plan_comparisons(board)
        return draft.finish(board, now)

    def advance(self, rounds: int, tokens: Sequence[tuple[int, ...]], now: float) -> tuple[StepPlan, ...]:
        """Of `core.steady`, as the one below."""
        return advance(self._board, self._cadence, rounds, tokens, now)

    def steady_rounds(self, closed_gates: int | None) -> int:
        return steady_rounds(self._board, self._cadence, closed_gates)

    # -- decodes ---------------------------------------------------------------------------------------------------

    def _make_room(self, now: float) -> None:
        """Preempt until every decode that needs a block has one, now or once the plans in flight ended."""
        board, kv = self._board, self._board.kv
        tokens = board.config.block_tokens
        ahead = 1 + board.config.num_speculative_tokens
        needy = 0
        for state in board.decoding.values():
            if state.num_computed + ahead > len(state.blocks) * tokens and state.wants_more:
                needy += kv.blocks_for(state.num_computed + ahead) - len(state.blocks)
        if needy <= kv.available:
            return
        while needy > kv.available + kv.coming() + self._ending() and len(board.decoding) + board.num_prefilling > 1:
            victim = choose_victim(board)
            if victim is None:
                break
            if victim.status is Status.DECODING and victim.wants_more:
                needy -= max(0, kv.blocks_for(victim.num_computed + ahead) - len(victim.blocks))
            preempt(board, victim)
        board.sweep(now)

    def _ending(self) -> int:
        """Blocks that come free for nothing: of requests whose last token is in flight."""
        refs = self._board.kv.pool.refs
        ending = (s for s in self._board.decoding.values() if not s.wants_more)
        return sum(refs[block] == 1 for state in ending for block in state.blocks)

    def _plan_decodes(self, draft: Draft, now: float) -> None:
        board = self._board
        tokens, extra = board.config.block_tokens, board.config.num_speculative_tokens
        width = 1 + extra
        decoding = list(board.decoding.values())
        rotate = len(decoding) * width > draft.budget
        for state in decoding:
            if not state.wants_more:
                continue  # its last token is in flight
            if draft.budget < width:
                break
            start = state.num_computed
            end = min(start + width, board.config.max_model_len)
            if end > len(state.blocks) * tokens:
                need = board.kv.blocks_for(end) - len(state.blocks)
                if need > board.kv.available:
                    continue
                state.blocks.extend(board.kv.take(need, now, state.id))
            draft.add_chunk(state, start, end - start, True, state.last_sampled_in if start >= state.num_tokens else -1)
            state.num_computed = end
            state.num_inflight += 1
            state.last_sampled_in = draft.step
            draft.budget -= end - start
            if rotate:  # those the budget did not reach come first next time
                board.decoding[state.id] = board.decoding.pop(state.id)

    # -- prefills --------------------------------------------------------------------------------------------------

    def _plan_prefills(self, draft: Draft, now: float, deferred: bool) -> None:
        board = self._board
        if not len(board.queues) or draft.budget <= 0:
            return
        threshold = board.config.long_prefill_token_threshold
        if draft.chunks and board.config.max_num_mixed_prefill_tokens:
            draft.budget = min(draft.budget, board.config.max_num_mixed_prefill_tokens)

        def take(state: RequestState, most: int) -> int:
            return self._take(draft, state, min(most, threshold) if threshold else most, now, deferred)

        draft.behind = those_behind(board)
        ids = {state.id for state in draft.behind}
        draft.budget = board.queues.serve(draft.budget, take, (lambda state: state.id in ids) if ids else None)
        if threshold and len(draft.grants) == 1 and not draft.chunks and draft.budget > 0:
            # Nothing else could run: the threshold protects nobody.
            grant = draft.grants[0]
            if grant.state.remaining:
                draft.budget -= self._grow(draft, grant, draft.budget, now)
        for grant in draft.grants:
            self._write(draft, grant)

    def _take(self, draft: Draft, state: RequestState, most: int, now: float, deferred: bool) -> int:
        """Give a queued request up to `most` tokens of this step; 0 if it cannot run now."""
        board, tokens = self._board, self._board.config.block_tokens
        if state.status is Status.WAITING:
            if draft.full or board.num_admitted >= board.config.max_num_seqs:
                return 0
            found = self._admission.find(draft, state)
            if found is None:
                return 0
            # Without room it cannot start, whatever the tiers have: on a full device nobody asks them in vain.
            fits = self._admission.fits(draft, state, found)
            shares = self._admission.offered(draft, state, found, now) if fits else ()
            if shares is None:
                return 0
            offered = self._admission.worthwhile(shares)
            left = state.total - found * tokens
            if deferred and not offered and left > tokens:
                state.held_step = draft.step
                return 0
            if not offered and left > most and self._is_scrap(draft, most):
                return 0
            if not fits:
                draft.no_room.append(state)
                draft.full = state.passed_over >= board.config.max_passed_over
                return 0
            self._admission.admit(draft, state, found, shares, offered, now)
            if state.id in board.loading:
                return 0  # its prefill starts when the load has ended
        elif state.num_computed % tokens == 0 and state.num_indexed == len(state.blocks):
            found = self._admission.find(draft, state)
            if found is None:
                return 0
            before = len(state.blocks)
            self._admission.adopt(state, found)
            draft.reserved_blocks -= len(state.blocks) - before
        small = state.remaining <= tokens  # counts as a decode: neither deferred nor a reason to defer others
        if deferred and not small:
            return 0
        grant = Grant(state, state.num_computed)
        taken = self._grow(draft, grant, most, now)
        if taken:
            draft.grants.append(grant)
            draft.had_prefill = draft.had_prefill or not small
        return taken

    def _grow(self, draft: Draft, grant: Grant, most: int, now: float) -> int:
        """Add up to `most` tokens to a grant: blocks for them, and their keys findable for later plans."""
        board, kv, state = self._board, self._board.kv, grant.state
        tokens = board.config.block_tokens
        room = (len(state.blocks) + kv.available) * tokens - state.num_computed
        count = min(state.remaining, most, room)
        if 0 < count < state.remaining:
            # End at a block's edge, where the next chunk can pick up what a sibling computed meanwhile.
            edge = (state.num_computed + count) // tokens * tokens
            if edge > state.num_computed:
                count = edge - state.num_computed
            elif self._is_scrap(draft, most):
                count = 0
        if count <= 0:
            return 0
        need = kv.blocks_for(state.num_computed + count) - len(state.blocks)
        if need > 0:
            state.blocks.extend(kv.take(need, now, state.id))
            draft.reserved_blocks -= need
        again = min(state.num_computed + count, state.restore_to) - state.num_computed
        board.counters.recomputed_tokens += max(0, again)
        state.num_computed += count
        grant.num_tokens += count
        draft.pending += [(state, state.incarnation, block) for block in kv.publish_pending(state, draft.step)]
        return count

    def _is_scrap(self, draft: Draft, most: int) -> bool:
        """Too little is left of the step to complete a block, and others make progress: not worth a chunk."""
        config = self._board.config
        return bool(draft.grants) and most < config.block_tokens <= (
            config.long_prefill_token_threshold or config.max_num_batched_tokens
        )

    def _write(self, draft: Draft, grant: Grant) -> None:
        """Turn a grant into a chunk; a request whose prompt ends with it decodes from the next plan on."""
        board, state = self._board, grant.state
        samples = state.num_computed == state.num_tokens
        draft.add_chunk(state, grant.start, grant.num_tokens, samples, -1)
        if samples:
            board.leave(state)
            state.num_inflight = 1
            state.last_sampled_in = draft.step
            board.enter(state, Status.DECODING)

    def _undrained(self, draft: Draft) -> bool:
        """Whether a request is left waiting that this step had no room or budget for."""
        return any(s.status is Status.WAITING and s.held_step != draft.step for s in self._board.queues)
