"""Runs plans on this machine: one thread takes them in order, so that whoever plans never waits for a step.

PyTorch releases the GIL inside its operators; the thread that plans runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
import logging
import math
from queue import SimpleQueue
import threading
import time

import torch

from samovar.base.errors import SamovarError
from samovar.base.ids import RequestId
from samovar.core.plan import Compare, Copy, Start, StepPlan, StepResult, TokenLogprobs, TransferDone
from samovar.core.ports import Mover
from samovar.models.batch import KVCache
from samovar.models.load import Model
from samovar.runner.batch import StepBatch, build_batch
from samovar.runner.comparing import differing
from samovar.runner.grammar import Masks
from samovar.runner.prefault import Prefault
from samovar.runner.sampler import Best, DrawMany, Sampled, best_of, sample
from samovar.runner.state import RunnerRequest
from samovar.runner.transfers import Transfers
from samovar.text.grammar.compiler import GrammarCompiler

log = logging.getLogger(__name__)

OnStep = Callable[[StepPlan, float, float], None]

NUM_GROUPS = 1
"""A dense llama keeps all its layers in one KV group."""


class PlanTicket:
    """A submitted plan; fulfilled once, by the runner's thread."""

    __slots__ = ("_ended", "_result")

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._result: StepResult | None = None

    def done(self) -> bool:
        return self._ended.is_set()

    def result(self) -> StepResult:
        self._ended.wait()
        assert self._result is not None
        return self._result

    def fulfil(self, result: StepResult) -> None:
        self._result = result
        self._ended.set()


class LocalRunner:
    """`core.ports.Runner` over one model and one pool of blocks, both owned from here on.

    `best` finds the likeliest tokens of logits, `draw_many` samples from them; a model may bring faster ones.
    `on_done` is called from the runner's thread after every plan, with its ticket already done. A step that raises
    becomes a result with `error` set, and the runner goes on. `on_step` is told of every step, after its result is out:
    its plan, and the times between which it ran, on `clock`. `compiler` is for requests with a grammar. `mover` moves
    blocks to and from the tiers below, is owned from here on, and calls `on_done` itself; without one, loads and stores
    fail.
    """

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        *,
        best: Best = best_of,
        draw_many: DrawMany | None = None,
        num_threads: int | None = None,
        on_done: Callable[[], None] = lambda: None,
        on_step: OnStep | None = None,
        clock: Callable[[], float] = time.monotonic,
        mover: Mover | None = None,
        prefault: Prefault | None = None,
        compiler: GrammarCompiler | None = None,
        debug: bool = False,
    ) -> None:
        self._model = model
        self._cache = cache
        self._best = best
        self._draw_many = draw_many
        self._num_threads = num_threads
        self._on_done = on_done
        self._on_step = on_step
        self._clock = clock
        self._prefault = prefault
        self._masks = Masks(compiler, model.spec.vocab_size) if compiler is not None else None
        self._debug = debug
        self._states: dict[RequestId, RunnerRequest] = {}
        self._transfers = Transfers(mover)
        self._compared: SimpleQueue[TransferDone] = SimpleQueue()
        self._plans: SimpleQueue[tuple[StepPlan, PlanTicket, float] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="runner", daemon=True)
        self._thread.start()

    def submit(self, plan: StepPlan) -> PlanTicket:
        assert not self._closed, "a plan was submitted to a closed runner"
        # They wait for no step: what a store reads is computed, and what a load writes is nobody else's.
        self._transfers.start(plan)
        ticket = PlanTicket()
        self._plans.put((plan, ticket, self._clock()))
        return ticket

    def transfers(self) -> Sequence[TransferDone]:
        done = list(self._transfers.done())
        while not self._compared.empty():
            done.append(self._compared.get_nowait())
        return done

    def close(self, timeout_s: float = 5.0) -> None:
        """Lets the step in hand end, fails those behind it, stops the threads. Idempotent."""
        if not self._closed:
            self._closed = True
            self._plans.put(None)
            if self._prefault is not None:
                self._prefault.close()
            self._transfers.close()
        self._thread.join(timeout_s)
        if self._masks is not None:
            self._masks.close()

    def _work(self) -> None:
        if self._num_threads is not None:
            torch.set_num_threads(self._num_threads)
        ended_s = -math.inf
        while (item := self._plans.get()) is not None:
            plan, ticket, came_s = item
            began_s = max(came_s, ended_s)
            if self._closed:
                ticket.fulfil(StepResult(plan.step, error="the runner was closed"))
            else:
                if self._prefault is not None:
                    self._prefault.step(_highest_block(plan))
                ticket.fulfil(self._run(plan))
            ended_s = self._clock()
            self._on_done()
            if self._on_step is not None:
                self._on_step(plan, began_s, ended_s)
            if self._prefault is not None and self._plans.empty():
                self._prefault.idle()

    def _run(self, plan: StepPlan) -> StepResult:
        for compare in plan.compares:
            self._compare(compare)
        try:
            self._prepare(plan)
            result = self._compute(plan)
        except Exception as error:
            for chunk in plan.chunks:
                if chunk.request_id in self._states:
                    self._states[chunk.request_id].broken = True
            text = error.message if isinstance(error, SamovarError) else f"{type(error).__name__}: {error}"
            unforeseen = not isinstance(error, SamovarError)
            log.error("step %d failed: %s", plan.step, text, exc_info=self._debug or unforeseen)
            result = StepResult(plan.step, error=text)
        return result

    def _prepare(self, plan: StepPlan) -> None:
        """Brings the request states up to the plan. Nothing here computes, so a failed step leaves them usable."""
        for request_id in plan.released:
            self._states.pop(request_id, None)
        for start in plan.starts:
            self._states[start.request_id] = self._begin(start)
        for redirect in plan.redirects:
            self._states[redirect.request_id].redirect(redirect)
        for chunk in plan.chunks:
            self._states[chunk.request_id].extend_tables(chunk.new_blocks)

    def _begin(self, start: Start) -> RunnerRequest:
        grammar = None
        if start.sampling.grammar:
            assert self._masks is not None, "a request with a grammar came to a runner without a compiler"
            grammar = self._masks.begin(start.sampling)
        return RunnerRequest(start, NUM_GROUPS, self._model.spec.vocab_size, grammar)

    def _compute(self, plan: StepPlan) -> StepResult:
        for copy in plan.copies:
            self._copy(copy)
        if not plan.chunks:
            return StepResult(plan.step)
        tokens: list[tuple[int, ...]] = [()] * len(plan.chunks)
        logprobs: list[tuple[TokenLogprobs, ...]] = [()] * len(plan.chunks)
        failed: list[int] = []
        asked = False
        batch = build_batch(plan.chunks, self._states, self._cache.block_tokens)
        if batch.forward.rows:
            with torch.inference_mode():
                sampled = self._sample(batch)
            for row, fault in sampled.faults.items():
                log.warning("request %d ends in step %d: %s", batch.samples[row].request_id, plan.step, fault)
            for at, token, report in zip(batch.sampling_chunks, sampled.tokens, sampled.logprobs, strict=True):
                chunk = plan.chunks[at]
                state = self._states[chunk.request_id]
                if token is None:
                    state.broken = True
                    failed.append(at)
                    continue
                state.put(chunk.start + chunk.num_tokens, token)
                tokens[at] = (token,)
                if report is not None:
                    logprobs[at] = (report,)
                    asked = True
        return StepResult(plan.step, tuple(tokens), tuple(logprobs) if asked else None, failed=tuple(failed))

    def _sample(self, batch: StepBatch) -> Sampled:
        """Runs the model; the masks of constrained rows are made meanwhile."""
        wanted = [
            (at, row.grammar, row.output)
            for at, row in enumerate(batch.samples)
            if row.grammar is not None and row.output is not None
        ]
        if not wanted or self._masks is None:
            logits = self._model.forward(batch.forward, self._cache)
            return sample(logits, batch.samples, self._best, self._draw_many)
        making = self._masks.start(wanted)
        try:
            logits = self._model.forward(batch.forward, self._cache)
        finally:
            # Also when the model failed: a request's matcher is nobody else's until its mask is made.
            masks = making.result()
        return sample(logits, batch.samples, self._best, self._draw_many, masks)

    def _compare(self, compare: Compare) -> None:
        try:
            failed = differing(self._cache, compare)
        except Exception:
            log.exception("blocks cannot be compared")
            failed = tuple(range(len(compare.computed)))
        if failed:
            log.error(
                "%d of %d loaded blocks differ from what computing them gives", len(failed), len(compare.computed)
            )
        self._compared.put(TransferDone(compare.transfer_id, failed, "differs" if failed else ""))

    def _copy(self, copy: Copy) -> None:
        with torch.inference_mode():
            for pool in (*self._cache.keys, *self._cache.values):
                pool[copy.target].copy_(pool[copy.source])


def _highest_block(plan: StepPlan) -> int:
    """Of the blocks that the plan adds to a table or loads into; -1 for none."""
    grown = (group for chunk in plan.chunks for group in chunk.new_blocks)
    loaded = (load.blocks for load in plan.loads)
    return max((max(blocks) for blocks in chain(grown, loaded) if blocks), default=-1)
