"""What a step's result means for its requests: new tokens, ends, newly findable blocks, and failed steps."""

from __future__ import annotations

from samovar.base.errors import StepFailed
from samovar.base.ids import BlockId, BlockKey, RequestId
from samovar.core.board import Board, InFlight, Transfer
from samovar.core.events import ErrorInfo, FinishReason, Miss, Output
from samovar.core.hints import apply_hints, give_up_device
from samovar.core.plan import Chunk, Redirect, StepResult, Store, TokenLogprobs
from samovar.core.ports import Connector
from samovar.core.preemption import preempt
from samovar.core.state import RequestState
from samovar.core.stream import Stream, awaited
from samovar.core.verify import compare_before_end
from samovar.policy.retention import TurnEnd

MAX_RECENT = 4096
"""Ended requests of which something may still be told."""


def apply(board: Board, record: InFlight, result: StepResult, now: float) -> list[Output]:
    """`record` is the oldest plan in flight, already taken off the board."""
    error = result.error or _malformed(board, record, result)
    if error is not None:
        return _fail(board, record, error, now)
    board.kv.index.computed([block for _, _, block in record.pending])
    if all(map(board.is_current, record.states, record.incarnations)):  # else the runner may have left some out
        seconds = now - max(record.planned_s, board.last_applied_s)
        board.prefill_rate.step(record.num_prefill_tokens, record.num_decodes, seconds)
    outputs = _end_unsampled(board, record, result, now)
    logprobs = result.logprobs
    requests = board.requests
    for i, (state, chunk) in enumerate(zip(record.states, record.chunks, strict=True)):
        if state.incarnation != record.incarnations[i] or requests.get(state.id) is not state:
            continue  # ended or preempted meanwhile
        state.failures = 0
        output = _advance(board, state, chunk, result.tokens[i], logprobs[i] if logprobs else ())
        if output is not None:
            outputs.append(output)
        if (state.num_applied // board.config.block_tokens) > state.num_indexed:
            _publish(board, state)
        if board.connector is not None:
            _offer(board, board.connector, state, now)
        if output is not None and output.finish is not None:
            end(board, state, output.finish, now)
    board.sweep(now)
    return outputs


def _malformed(board: Board, record: InFlight, result: StepResult) -> str | None:
    if len(result.tokens) != len(record.chunks):
        return f"the runner answered {len(result.tokens)} chunks of {len(record.chunks)}"
    for i, (chunk, tokens) in enumerate(zip(record.chunks, result.tokens, strict=True)):
        if not board.is_current(record.states[i], record.incarnations[i]):
            continue  # a runner may leave out what rests on a failed step
        if i in result.failed and chunk.samples and not tokens:
            continue
        if bool(tokens) is not chunk.samples or len(tokens) > 1 + board.config.num_speculative_tokens:
            return f"the runner answered {len(tokens)} tokens for a chunk of {chunk.num_tokens}"
    return None


def _advance(
    board: Board,
    state: RequestState,
    chunk: Chunk,
    tokens: tuple[int, ...],
    logprobs: tuple[TokenLogprobs, ...],
) -> Output | None:
    if not chunk.samples:
        state.num_applied = max(state.num_applied, chunk.start + chunk.num_tokens)
        return None
    state.num_inflight -= 1
    end_of_chunk = chunk.start + chunk.num_tokens
    drafts = max(0, end_of_chunk - state.num_tokens)
    if drafts:
        # Positions of rejected drafts are computed again; nothing of them was published.
        end_of_chunk += len(tokens) - 1 - drafts
        state.num_computed = end_of_chunk
    state.num_applied = max(state.num_applied, end_of_chunk)

    finish: FinishReason | None = None
    stop_token: int | None = None
    kept = 0
    for token in tokens:
        kept += 1
        made = state.num_output + kept
        # A grammar that allows nothing else ends an answer before its min_tokens.
        if token in state.stop_tokens and (made >= state.request.sampling.min_tokens or state.request.sampling.grammar):
            finish, stop_token = FinishReason.STOP, token
            break
        if made >= state.max_tokens:
            finish = FinishReason.LENGTH
            break
    tokens = tokens[:kept]
    state.append(tokens)
    state.num_applied = min(state.num_applied, state.num_tokens)
    board.counters.generated_tokens += kept
    miss: Miss | None = None
    if not state.first_token_seen:
        state.first_token_seen = True
        miss = _count_prompt(board, state)
    return Output(
        state.id, tokens, logprobs[:kept], finish, stop_token, None, min(state.num_cached, state.num_prompt), miss
    )


def _count_prompt(board: Board, state: RequestState) -> Miss | None:
    counters = board.counters
    missed = state.num_prompt - state.num_cached
    counters.prompt_tokens += state.num_prompt
    counters.cached_tokens += state.num_cached
    found = _found_by_tier(state)
    counters.cached_by_tier.update(found)
    counters.ceiling_tokens += max(state.ceiling, state.num_cached)
    rate = board.prefill_rate.tokens_per_s
    counters.unpriced_tokens += state.num_cached
    if rate:
        counters.saved_s += counters.unpriced_tokens / rate
        counters.unpriced_tokens = 0
    counters.shared_tokens += max(0, state.num_cached - state.num_loaded - state.num_known)
    reason = state.miss
    if reason is None:
        return None
    if missed <= state.num_prompt - (state.num_prompt - 1) // board.config.block_tokens * board.config.block_tokens:
        reason = Miss("none")  # everything that a hit may cover, if only after a sibling had computed it
    if not state.caches:
        reason = Miss("disabled")
    state.miss = Miss(reason.reason, missed, reason.block, reason.at_s, reason.for_request, found)
    counters.misses[reason.reason] += 1
    counters.missed_tokens[reason.reason] += missed
    return state.miss


def _found_by_tier(state: RequestState) -> dict[str, int]:
    """`num_cached` by where it was; more may have been loaded, and computed by somebody else before it came."""
    found: dict[str, int] = {}
    left = state.num_cached
    for tier, num_tokens in state.loaded_by_tier.items():
        found[tier] = min(num_tokens, left)
        left -= found[tier]
    return {"device": left} | found


def _publish(board: Board, state: RequestState) -> None:
    """Make the request's newly full blocks findable."""
    if not state.caches:
        return
    state.extend_keys(state.num_applied // board.config.block_tokens, board.config.block_tokens)
    for index, block in board.kv.publish_computed(state, board.next_step - 1):
        assert index < state.num_sent_blocks
        board.redirects.append((state, state.incarnation, Redirect(state.id, 0, index, block)))


def _offer(board: Board, connector: Connector, state: RequestState, now: float) -> None:
    """Offer the blocks that are computed since the last offer to the tiers: those found on the device among them, which
    a tier may lack, and behind a block that it lacks it cannot serve any."""
    tokens = board.config.block_tokens
    first = state.num_offered
    end = min(state.num_applied // tokens, state.num_indexed)
    if end > first:
        state.num_offered = end
        _store(board, connector, state, first, end, now)


def _store(board: Board, connector: Connector, state: RequestState, first: int, end: int, now: float) -> None:
    keys = state.keys[first:end]
    parent = state.keys[first - 1] if first else b""
    wanted, place = connector.store(board.next_transfer_id, tuple(keys), parent, state.stream_name, now)
    if not wanted:
        return
    chosen: tuple[BlockKey, ...] = tuple(keys[i] for i in wanted)
    blocks: tuple[BlockId, ...] = tuple(state.blocks[first + i] for i in wanted)
    transfer_id = board.new_transfer(Transfer(False, state.holding, chosen, stream=state.stream_name))
    board.stores.append(Store(transfer_id, 0, chosen, blocks, place.slots, place.generations))


def end(board: Board, state: RequestState, reason: FinishReason, now: float, kept_tokens: int | None = None) -> None:
    """The request is over; its blocks stay cached, and untouched as long as a plan in flight names them.

    `kept_tokens`: how much of the output the client has, when that is not all of it; the session's next turn is
    expected to continue from there.
    """
    board.leave(state)
    del board.requests[state.id]
    if state.num_sent_blocks:
        board.released.append(state.id)
    num_blocks = state.num_indexed
    if kept_tokens is not None:
        num_blocks = min(num_blocks, (state.num_prompt + max(0, kept_tokens)) // board.config.block_tokens)
    compare_before_end(board, state)
    board.kv.let_go(state)  # before its hints: they are of blocks that are let go of
    if state.stream is not None:
        _end_turn(board, state, state.stream, reason, num_blocks, now)
    board.counters.finished[reason.value] += 1


def _end_turn(
    board: Board, state: RequestState, stream: Stream, reason: FinishReason, num_blocks: int, now: float
) -> None:
    """What the end of a request means for its conversation: policy and tiers are told, and its hints count from now."""
    keys = state.keys[:num_blocks]
    known = board.streams.ended(stream, keys, state.num_prompt // board.config.block_tokens, now)
    board.ceiling.add(keys)
    # A stop may be the end of a tool call: who has the text says so in a moment, if it has not done so already.
    told = state.outcome or ({"length": "length", "error": "error"}.get(reason.value, ""), ())
    stream.awaits = awaited(*told)
    # One that was stopped early leaves the turn before it where it was.
    num_blocks = stream.num_blocks if 0 < num_blocks == known else num_blocks
    board.policy.turn_ended(TurnEnd(stream.name, num_blocks, *told, tenant=stream.tenant), now)
    board.recent[state.id] = stream.name
    while len(board.recent) > MAX_RECENT:
        board.recent.popitem(last=False)
    if stream.released or stream.demoted:  # said while it ran
        give_up_device(board, stream)
    apply_hints(board, stream, state.request.hints, now)
    if board.connector is not None and keys:
        board.connector.turn_ended(stream.name, tuple(keys), keep=not stream.released, now=now)


def _end_with_error(board: Board, state: RequestState, error: str, now: float) -> Output:
    info = ErrorInfo.of(StepFailed(f"the step that computed this request failed: {error}"))
    end(board, state, FinishReason.ERROR, now)
    cached = min(state.num_cached, state.num_prompt)
    return Output(state.id, finish=FinishReason.ERROR, error=info, num_cached_tokens=cached)


def _fail(board: Board, record: InFlight, error: str, now: float) -> list[Output]:
    """Nothing the step wrote may be used, nor what was built on it: those requests start again from what is computed,
    or end with an error when it was not their first failed step."""
    board.counters.failed_steps += 1
    culprits = {(state.id, inc) for state, inc in zip(record.states, record.incarnations, strict=True)}
    affected = _forget_built_on(board, record, culprits)
    outputs: list[Output] = []
    for state in affected:
        if (state.id, state.incarnation) in culprits:
            state.failures += 1
        if state.failures >= board.config.max_step_failures:
            outputs.append(_end_with_error(board, state, error, now))
        else:
            preempt(board, state)
    board.sweep(now)
    return outputs


def _end_unsampled(board: Board, record: InFlight, result: StepResult, now: float) -> list[Output]:
    """Requests whose own row gave nothing to sample from end alone. Logits that are no numbers may come from KV that is
    none: what such a request published in this step goes, with what others built on it."""
    culprits = {(record.states[i].id, record.incarnations[i]) for i in result.failed}
    outputs: list[Output] = []
    for state in _forget_built_on(board, record, culprits) if culprits else ():
        if (state.id, state.incarnation) in culprits:
            outputs.append(_end_with_error(board, state, "its next token could not be sampled", now))
        else:
            preempt(board, state)
    return outputs


def _forget_built_on(board: Board, record: InFlight, culprits: set[tuple[RequestId, int]]) -> list[RequestState]:
    """Make everything that rests on what `culprits` computed in a step unfindable, through requests that adopted their
    blocks and the plans in flight behind it. Returns the live requests concerned, in order of arrival."""
    lost = [block for state, incarnation, block in record.pending if (state.id, incarnation) in culprits]
    gone = board.kv.index.forget(lost)
    affected: dict[RequestId, RequestState] = {}
    tainted = set(culprits)
    grew = True
    while grew:
        grew = False
        for state in board.requests.values():
            if state.id in affected:
                continue
            if (state.id, state.incarnation) in culprits or not gone.isdisjoint(state.blocks):
                affected[state.id] = state
                tainted.add((state.id, state.incarnation))
                grew = True
        later = [
            block
            for behind in board.inflight
            for state, incarnation, block in behind.pending
            if (state.id, incarnation) in tainted
        ]
        gone |= board.kv.index.forget(later)
    if gone:
        board.forgot()
    return [state for state in board.requests.values() if state.id in affected]
