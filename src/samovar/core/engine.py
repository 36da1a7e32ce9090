"""The engine core: a state machine that drivers feed with requests, results and the time.

It never sleeps, reads a clock, opens a socket, starts a thread or imports torch. Same calls, same answers: there is no
randomness, no iteration over sets, no id made elsewhere than by counting. `core.replay` holds it to that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from samovar.base.errors import ContextLengthExceeded, InvalidField, RateLimited, SamovarError, Saturated
from samovar.base.ids import BlockKey, RequestId
from samovar.base.keys import TOKEN_BYTES
from samovar.core import outcome
from samovar.core.board import Board
from samovar.core.cache_report import Dormant, cache_report
from samovar.core.config import EngineConfig
from samovar.core.events import ErrorInfo, FinishReason, Output, Verdict
from samovar.core.hints import hint_session, judge
from samovar.core.plan import Gate, StepPlan, StepResult, TransferDone
from samovar.core.ports import Connector, PrefixMatch
from samovar.core.request import Request
from samovar.core.scheduler import Scheduler
from samovar.core.state import RequestState, Status
from samovar.core.stats import CacheReport, EngineStats
from samovar.core.steady import quiet_until
from samovar.core.stream import awaited
from samovar.core.transfers import transferred
from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.retention import RetentionPolicy


class Engine:
    """One engine core. `now` is in seconds and never decreases from call to call."""

    __slots__ = ("_board", "_scheduler")

    def __init__(self, config: EngineConfig, policy: RetentionPolicy, connector: Connector | None = None) -> None:
        self._board = Board(config, policy, connector)
        self._scheduler = Scheduler(self._board)

    @property
    def config(self) -> EngineConfig:
        return self._board.config

    @property
    def has_work(self) -> bool:
        """Whether a call to `plan`, `apply` or `transferred` may still be needed."""
        board = self._board
        return bool(board.requests or board.inflight or board.transfers or board.stores)

    @property
    def wake_at(self) -> float | None:
        """When `plan` may have something to do though nothing happened before: a tier's answer or a load is overdue
        then, a conversation is to be brought up, or the tiers want something moved. What the last plan had behind it
        already only an event can help."""
        board = self._board
        if board.connector is None:
            return None
        times = [s.lookup_deadline_s for s in board.queues if s.lookup_deadline_s is not None]
        if board.loading_keys:
            times += [t.deadline_s for t in board.transfers.values() if t.is_load and not t.given_up]
        if (moves_at := board.connector.wake_at) is not None:
            times.append(moves_at)
        times = [at for at in times if at > board.planned_s]
        if (prefetch_at := board.prefetches.next_s) is not None:  # a plan takes all that are due: it is a later one
            times.append(prefetch_at)
        return min(times, default=None)

    @property
    def loading(self) -> Collection[RequestId]:
        """Requests that wait for a tier to bring their blocks. A view."""
        return self._board.loading.keys()

    def submit(self, request: Request, now: float) -> Verdict:
        """Accept a request into its tenant's queue, or say why not."""
        try:
            state = self._enter(request, now)
        except SamovarError as error:
            self._board.counters.rejected[error.code] += 1
            return Verdict(request.id, ErrorInfo.of(error))
        self._board.requests[request.id] = state
        self._board.enter(state, Status.WAITING)
        return Verdict(request.id, None, judge(self._board, state, now))

    def _enter(self, request: Request, now: float) -> RequestState:
        board, config = self._board, self._board.config
        num_tokens, odd = divmod(len(request.token_ids), TOKEN_BYTES)
        if odd or num_tokens == 0:
            raise InvalidField("the prompt must have at least one token", param="prompt")
        if num_tokens >= config.max_model_len:
            raise ContextLengthExceeded(
                f"the prompt has {num_tokens} tokens, the context holds {config.max_model_len} including the output",
                param="prompt",
            )
        if request.sampling.max_tokens < 1:
            raise InvalidField(f"max_tokens must be at least 1, got {request.sampling.max_tokens}", param="max_tokens")
        if request.id in board.requests:
            raise InvalidField(f"request id {request.id} is in use", param="request_id")
        state = RequestState(
            request, board.next_seq, config.block_tokens, config.max_model_len, caching=config.enable_prefix_caching
        )
        self._check_room(state, now)
        state.num_known = state.num_tokens - self._uncached(state)
        board.next_seq += 1
        return state

    def _check_room(self, state: RequestState, now: float) -> None:
        """Raises RateLimited or Saturated. The tenant's own limits come first: who floods the queue hears that it is
        its own doing."""
        board, config = self._board, self._board.config
        most, most_tokens = config.max_num_queued_reqs_per_tenant, config.max_num_queued_tokens_per_tenant
        if most or most_tokens:
            own = [s for s in board.queues.of(state.request.tenant) if s.status is Status.WAITING]
            self._check_queue(RateLimited, " of yours", own, len(own), most, most_tokens, state, now)
        most, most_tokens = config.max_num_queued_reqs, config.max_num_queued_tokens
        self._check_queue(Saturated, "", board.queues, board.num_waiting, most, most_tokens, state, now)

    def _check_queue(
        self,
        error: type[SamovarError],
        whose: str,
        queue: Iterable[RequestState],
        num_waiting: int,
        most: int,
        most_tokens: int,
        state: RequestState,
        now: float,
    ) -> None:
        """An empty queue takes any prompt."""
        if most and num_waiting >= most:
            wait_s = self._scheduler.admission.pace.wait_s(self._board.num_waiting, now)
            raise error(f"{num_waiting} requests{whose} are queued, the limit is {most}", retry_after_s=wait_s)
        if not most_tokens or not num_waiting:
            return
        queued, mine = sum(self._uncached(s) for s in queue if s.status is Status.WAITING), self._uncached(state)
        if queued + mine > most_tokens:
            wait_s = self._scheduler.admission.pace.wait_s(self._board.num_waiting, now)
            raise error(
                f"{queued} uncached tokens{whose} are queued and this prompt adds {mine}, the limit is {most_tokens}",
                retry_after_s=wait_s,
            )

    def _uncached(self, state: RequestState) -> int:
        kv = self._board.kv
        return state.num_tokens - kv.index.match(state.keys, 0, state.hit_limit(kv.block_tokens)) * kv.block_tokens

    def finish(self, request_id: RequestId, num_tokens: int, now: float) -> None:
        """End a request from outside: a stop string (seen after `num_tokens` output tokens) or a client that went away.

        Its blocks are free for others as soon as no plan in flight names them. Unknown ids are ignored: the request
        may have ended by itself meanwhile.
        """
        state = self._board.requests.get(request_id)
        if state is None:
            return
        outcome.end(self._board, state, FinishReason.ABORT, now, num_tokens)
        self._board.sweep(now)

    def plan(self, now: float, gate: Gate | None = None) -> StepPlan | None:
        """The next plan, or None: nothing to do, or `depth` plans are in flight."""
        return self._scheduler.plan(now, gate)

    def apply(self, step: int, result: StepResult, now: float) -> list[Output]:
        """Take in the result of the oldest plan in flight, which must be `step`."""
        record = self._board.inflight.popleft()
        assert record.step == step == result.step, "results must be applied in the order of their plans"
        outputs = outcome.apply(self._board, record, result, now)
        self._board.last_applied_s = now
        return outputs

    def steady_rounds(self, closed_gates: int | None = None) -> int:
        """How many of the next rounds (the oldest result applied, a plan made) would change nothing but positions, if
        nothing else happens; known once as many plans are in flight as may be. `closed_gates`: how many of the next
        plans come with a closed gate, None when alone. Changes nothing. See `core.steady`."""
        return self._scheduler.steady_rounds(closed_gates)

    @property
    def quiet_until(self) -> float:
        """Plans made before that time find nothing to do for the time alone: steady rounds must end before it, and an
        engine without work need not be asked for a plan until then."""
        return quiet_until(self._board)

    def advance(self, rounds: int, tokens: Sequence[tuple[int, ...]], now: float) -> tuple[StepPlan, ...]:
        """`rounds` of them at once, ending at `now`. `tokens[i]`: all that they gave the request of the i-th chunk in
        flight; none may end it. Returns the last plans made, at most `depth`: they are in flight, behind those not
        applied."""
        return self._scheduler.advance(rounds, tokens, now)

    def transferred(self, done: Sequence[TransferDone], now: float) -> list[Output]:
        """Loads and stores that ended on every rank."""
        transferred(self._board, self._scheduler.admission, done, now)
        return []

    def hint(self, tenant: str, session_id: str, actions: Sequence[Hint], now: float) -> tuple[HintAnswer, ...]:
        """Hints on a session of a tenant, whose times count from now; one answer per action."""
        return hint_session(self._board, tenant, session_id, actions, now)

    def outcome(self, request_id: RequestId, reason: str, tools: tuple[str, ...], now: float) -> None:
        """How a request ended, once its text was read: "tool_calls" and which, "stop", "length", "abort". May come
        before or after its end; unknown ids are ignored."""
        board = self._board
        state = board.requests.get(request_id)
        if state is not None:
            state.outcome = (reason, tools)
        elif (name := board.recent.get(request_id)) is not None:
            stream = board.streams.get(name)
            if stream is not None and not stream.running:
                stream.awaits = awaited(reason, tools)
            board.policy.outcome(name, reason, tools, now)

    def cache_report(self, now: float, dormant: Dormant | None = None) -> CacheReport:
        """`dormant`: what a tier had when the engine started; the caller tells them of turns, and those of which
        nothing is left are dropped."""
        return cache_report(self._board, now, dormant if dormant is not None else Dormant())

    def match(self, keys: Sequence[BlockKey], num_tokens: int, now: float) -> PrefixMatch:
        """How much of a prompt would be found, were it submitted now. Changes nothing."""
        board = self._board
        if not board.config.enable_prefix_caching:
            return PrefixMatch(0, {"device": 0})
        tokens = board.config.block_tokens
        limit = min(max(0, num_tokens - 1) // tokens, len(keys))
        found = board.kv.index.match(keys, 0, limit)
        tiers = {"device": found * tokens}
        if board.connector is not None and found < limit:
            for share in board.connector.lookup(tuple(keys[found:limit]), now).shares:
                tiers[share.tier] = tiers.get(share.tier, 0) + share.num_blocks * tokens
        return PrefixMatch(sum(tiers.values()), tiers)

    def stats(self) -> EngineStats:
        board, counters, kv = self._board, self._board.counters, self._board.kv
        waiting = [s for s in board.queues if s.status is Status.WAITING]
        last = board.next_step - 1
        held = sum(1 for s in waiting if s.held_step >= last and s.held_step >= 0)
        return EngineStats(
            num_running=board.num_admitted,
            num_waiting=len(waiting),
            num_waiting_for_capacity=len(waiting) - held,
            num_waiting_deferred=held,
            num_queued_tokens=sum(self._uncached(s) for s in waiting),
            num_blocks=kv.pool.num_blocks,
            num_free_blocks=kv.pool.num_free,
            num_cached_blocks=kv.index.num_unused,
            steps=counters.steps,
            step_tokens=counters.step_tokens,
            prefill_steps=counters.prefill_steps,
            failed_steps=counters.failed_steps,
            requests_admitted=counters.admitted,
            requests_finished=dict(counters.finished),
            requests_rejected=dict(counters.rejected),
            preemptions=counters.preemptions,
            prompt_tokens=counters.prompt_tokens,
            prompt_tokens_cached=counters.cached_tokens,
            cached_tokens_by_tier=dict(counters.cached_by_tier),
            prompt_tokens_computed=counters.prompt_tokens - counters.cached_tokens,
            recomputed_tokens=counters.recomputed_tokens,
            generation_tokens=counters.generated_tokens,
            prefix_queries_tokens=counters.prompt_tokens,
            prefix_hits_tokens=counters.cached_tokens,
            shared_tokens=counters.shared_tokens,
            evicted_blocks=kv.index.num_evicted,
            deduplicated_blocks=kv.num_deduplicated,
            loaded_blocks=counters.loaded_blocks,
            stored_blocks=counters.stored_blocks,
            failed_load_blocks=counters.failed_load_blocks,
            failed_load_reasons=dict(counters.failed_load_reasons),
            wasted_load_blocks=counters.wasted_load_blocks,
            ceiling_tokens=counters.ceiling_tokens,
            regretted_tokens=counters.missed_tokens["evicted"] + counters.missed_tokens["expired"],
            saved_s=counters.saved_s if self._board.prefill_rate.tokens_per_s else 0.0,
            prefill_tokens_per_s=self._board.prefill_rate.tokens_per_s,
            declined_load_blocks=counters.declined_load_blocks,
            prefetched_blocks=counters.prefetched_blocks,
            verified_blocks=counters.verified_blocks,
            differing_blocks=counters.differing_blocks,
            hints=dict(counters.hints),
            misses=dict(counters.misses),
            missed_tokens=dict(counters.missed_tokens),
        )

    def check(self) -> None:
        """Recompute every invariant from scratch; raises AssertionError. Linear in blocks and requests."""
        self._board.check()
        if self._board.connector is not None:
            self._board.connector.check()
