"""Rounds that differ in nothing but positions: the oldest result is applied, and a plan like those in flight is made.

A driver that knows the results beforehand need not go through such rounds one by one: `steady_rounds` says how many
there are at least, `advance` leaves the core as they would. Only while all that runs decodes, waits for its load, or is
a prompt that the prefill cadence puts off: nobody waits for room, no request ends, no block is begun or becomes full,
and nothing is left to be told to the runner or to a tier. Tiers and loads may want something at a time: such rounds end
before `quiet_until`, and before any transfer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from samovar.core.board import Board, InFlight
from samovar.core.cadence import PrefillCadence
from samovar.core.plan import Chunk, StepPlan
from samovar.core.state import RequestState, Status

_SERVED = 2
"""After so many plans that take nothing, a tenant's deficit does not change any more."""


def quiet_until(board: Board) -> float:
    """Until then no plan has anything to do for its time alone: no load is late, no conversation is to be brought up,
    and the tiers want nothing moved. Changes nothing."""
    if board.connector is None:
        return inf
    until_s = inf if (moves_s := board.connector.wake_at) is None else moves_s
    if (prefetch_s := board.prefetches.next_s) is not None:
        until_s = min(until_s, prefetch_s)
    if board.loading_keys:
        until_s = min([until_s, *(t.deadline_s for t in board.transfers.values() if t.is_load and not t.given_up)])
    return until_s


def steady_rounds(board: Board, cadence: PrefillCadence, closed_gates: int | None) -> int:
    """How many of the next rounds are steady, whatever tokens come, 1 to 1 + num_speculative_tokens of each request in
    each round. `closed_gates`: how many of the next plans come with a closed gate, None when the engine is alone.
    Changes nothing."""
    config, decoding = board.config, board.decoding
    width = 1 + config.num_speculative_tokens
    if not decoding or len(board.inflight) < config.depth:
        return 0
    if len(decoding) + len(board.loading) + board.num_prefilling < len(board.requests):
        return 0
    if len(decoding) * width > config.max_num_batched_tokens:
        return 0
    if board.released or board.redirects or board.stores or board.compares or board.suspects or board.kv.releases_soon:
        return 0
    states = list(decoding.values())
    if not all(_decodes_all(record, states, width) for record in board.inflight):
        return 0
    rounds: int = min(_rounds(state, board, width) for state in states)
    if board.num_prefilling:
        # No plan that puts prompts off finds more of them as long as nothing becomes findable.
        rounds = min(rounds, cadence.deferring(closed_gates))
        if rounds > 0 and not all(_stays(s, board) for s in board.queues if s.status is Status.PREFILLING):
            return 0
    return max(0, rounds)


def _stays(state: RequestState, board: Board) -> bool:
    """Whether a plan that puts prompts off leaves this one as it is: too long to count as a decode, and its next block
    is neither there nor on its way."""
    tokens, have = board.config.block_tokens, len(state.blocks)
    if state.remaining <= tokens:
        return False
    if state.num_computed % tokens or state.num_indexed != have or have >= state.hit_limit(tokens):
        return True
    return board.kv.index.get(state.keys[have]) is None and state.keys[have] not in board.loading_keys


def _decodes_all(record: InFlight, states: list[RequestState], width: int) -> bool:
    """Whether a plan in flight decodes all of these, and nothing else is in it."""
    if record.num_prefill_tokens or record.pending or len(record.states) != len(states):
        return False
    return all(
        mine is state and incarnation == state.incarnation and chunk.num_tokens == width
        for mine, incarnation, chunk, state in zip(
            record.states, record.incarnations, record.chunks, states, strict=True
        )
    )


def _rounds(state: RequestState, board: Board, width: int) -> int:
    """Steady rounds as far as one decoding request is concerned."""
    config = board.config
    blocks, tokens, ahead = len(state.blocks), config.block_tokens, config.depth - 1
    if not state.first_token_seen or state.num_sent_blocks < blocks or state.num_inflight != config.depth:
        return 0
    if board.connector is not None and state.num_offered < state.num_indexed:
        return 0
    # Tokens it may still get: until its last one, the end of its table, and the end of the block it fills.
    left = state.max_tokens - 1 - state.num_output - ahead
    left = min(left, min(blocks * tokens, config.max_model_len) - state.num_tokens + 1 - width - ahead)
    if state.caches:
        left = min(left, (state.num_indexed + 1) * tokens - state.num_tokens)
    return left // width


def advance(
    board: Board, cadence: PrefillCadence, rounds: int, tokens: Sequence[tuple[int, ...]], now: float
) -> tuple[StepPlan, ...]:
    """Does `rounds` rounds at once, which must be steady. `tokens[i]`: what they gave the i-th decoding request in all,
    in the order of the plans in flight. Returns the last plans made, as many as can be in flight."""
    most = steady_rounds(board, cadence, rounds)
    assert 0 < rounds <= most, f"{rounds} rounds, {most} are steady"
    config = board.config
    width, depth = 1 + config.num_speculative_tokens, config.depth
    states = list(board.decoding.values())
    counters = board.counters
    board.next_step += rounds
    for state, new in zip(states, tokens, strict=True):
        assert rounds <= len(new) <= rounds * width, f"{len(new)} tokens in {rounds} rounds"
        assert state.stop_tokens.isdisjoint(new), "a token that ends the output came in a steady round"
        state.append(new)
        state.num_computed += len(new)
        state.num_applied = state.num_tokens - 1
        state.last_sampled_in = state.holding.last_step = board.next_step - 1
        state.failures = 0
        counters.generated_tokens += len(new)
    if board.num_prefilling and len(states) * width < config.max_num_batched_tokens:
        for _ in range(min(rounds, _SERVED)):
            board.queues.serve(1, lambda state, most: 0)
    cadence.decoded(rounds)
    counters.steps += rounds
    counters.step_tokens += rounds * width * len(states)
    board.last_applied_s = board.planned_s = now
    return tuple([_replan(board, behind, now) for behind in reversed(range(min(rounds, depth)))])


def _replan(board: Board, behind: int, now: float) -> StepPlan:
    """The oldest plan in flight was applied; a new one for the same requests is, with `behind` more to come."""
    depth, width = board.config.depth, 1 + board.config.num_speculative_tokens
    record = board.inflight.popleft()
    step = board.next_step - 1 - behind
    # One deep, the token at its start is known by value when the plan is made.
    sampled_in = step - 1 if depth > 1 else -1
    chunks = tuple([Chunk(s.id, s.num_computed - width - behind, width, (), True, sampled_in) for s in record.states])
    states, incarnations = record.states, record.incarnations
    board.inflight.append(InFlight(step, chunks, states, incarnations, [], now, 0, len(states)))
    return StepPlan(step, chunks)
