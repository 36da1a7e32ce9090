"""One rank: an engine core, unmodified, and what is in flight on it.

A plan with chunks has a place in the group's steps. One that only starts transfers takes no time: it is answered as
soon as what was planned before it is.

While the core says that nothing but positions changes, the rank *coasts*: rounds are counted, and the core is told of
all of them before it is asked anything else. A round is counted when its plan would be made, in the place among the
ranks where that would be: what others did to common tiers before is seen, as it would have been.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from samovar.base.ids import RequestId
from samovar.core.engine import Engine
from samovar.core.events import Output, Verdict
from samovar.core.plan import Chunk as PlanChunk
from samovar.core.plan import Gate, StepPlan, StepResult
from samovar.core.replay import Recorder
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.sim.coasting import Coasting
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.live import Live
from samovar.sim.load_waits import LoadWaits
from samovar.sim.prompt_keys import ROOT
from samovar.sim.seam import VirtualMover

IDLE = StepShape()
NO_STEP = -1
_LEAST_CALM = 2
"""Rounds for which coasting pays."""


class Ended(Protocol):
    def __call__(self, live: Live, now: float) -> None:
        """The request's last token is there."""
        ...


@dataclass(slots=True)
class Planned:
    plan: StepPlan
    index: int
    """Place in the steps of the group's wave; NO_STEP without chunks."""
    shape: StepShape


class Rank:
    """`others_s` is the time its steps took beyond what it needed itself, summed up since the run began."""

    __slots__ = (
        "_coasting", "_due_s", "_ended", "_mean", "_waits", "_width", "computed_tokens", "engine", "in_flight", "live",
        "mover", "num_started", "number", "others_s", "planned_s",
    )  # fmt: skip

    def __init__(
        self, number: int, engine: Engine | Recorder, mover: VirtualMover | None, mean_tokens: float, ended: Ended
    ) -> None:
        self.number = number
        self.engine = engine
        self.mover = mover
        self.live: dict[RequestId, Live] = {}
        self.in_flight: deque[Planned] = deque()
        self.others_s = 0.0
        self.num_started = 0
        """Of the live ones, those that had a step."""
        self.computed_tokens = 0
        """Of all chunks planned."""
        self.planned_s = float("-inf")
        """When it was last asked for a plan, or would have been had it had room for one."""
        self._coasting: Coasting | None = None
        self._due_s: float | None = None
        """When the step ended whose round is to be counted, or applied, before the next one begins."""
        self._waits = LoadWaits()
        self._ended = ended
        self._mean = mean_tokens
        self._width = 1 + engine.config.num_speculative_tokens

    @property
    def next_free(self) -> int:
        """The first step of the wave, counted from what it has in flight, that it has no plan for; NO_STEP when it has
        nothing in flight."""
        return self.in_flight[-1].index + 1 if self.in_flight and self.in_flight[-1].index != NO_STEP else NO_STEP

    @property
    def wake_s(self) -> float | None:
        """When a plan may have something to do though nothing happens before. One that the last plan had behind it can
        only be helped by an event, and a rank that coasts is not helped before its step ends."""
        if self._coasting is not None:
            return None
        wake_s = self.engine.wake_at
        return wake_s if wake_s is not None and wake_s > self.planned_s else None

    # -- calls into the core ---------------------------------------------------------------------------------------

    def submit(self, live: Live, session_id: str, parent_id: str, now: float) -> Verdict:
        request = Request(
            live.id,
            bytes(4 * live.num_prompt),
            SamplingParams(max_tokens=live.launch.output_tokens),
            ROOT,
            live.keys,
            session_id=session_id,
            parent_session_id=parent_id,
        )
        self.catch_up()
        live.core_s = now
        verdict = self.engine.submit(request, now)
        if verdict.error is None:
            self.live[live.id] = live
        return verdict

    def plan(self, index: int, gate: Gate | None, now: float) -> StepPlan | None:
        """The plan for step `index` of the wave, which is in flight from now on."""
        assert self._coasting is None
        plan = self.engine.plan(now, gate)
        if self.mover is not None:
            self._waits.planned(self.engine.loading, self.live, now)
        if plan is None:
            return None
        if self.mover is not None:
            self.mover.start(plan, now)
        if plan.chunks:
            self.in_flight.append(Planned(plan, index, self._shape(plan)))
        else:
            self.in_flight.append(Planned(plan, NO_STEP, IDLE))
        return plan

    def apply_first(self, now: float) -> None:
        """The oldest plan in flight has ended."""
        plan = self.in_flight.popleft().plan
        result = StepResult(plan.step, tuple([self._tokens(chunk) for chunk in plan.chunks]))
        for output in self.engine.apply(plan.step, result, now):
            self._take(output, now)

    def transferred(self, now: float) -> bool:
        """Tells the core of transfers that ended; False when there were none."""
        done = self.mover.ended(now) if self.mover is not None else []
        if not done:
            return False
        self.catch_up()
        for output in self.engine.transferred(done, now):
            self._take(output, now)
        self._waits.transferred(self.engine.loading, now)
        return True

    def outcome(self, live: Live, reason: str, now: float) -> None:
        """How its answer ended, once that was read."""
        self.catch_up()
        self.engine.outcome(live.id, reason, (), now)

    def finish(self, live: Live, now: float) -> None:
        """Its client went away, if it is still here."""
        self.catch_up()
        if self.live.pop(live.id, None) is not None:
            self.num_started -= live.first_step_s is not None
            self._waits.ended(live)
            self.engine.finish(live.id, live.output_tokens, now)

    # -- coasting --------------------------------------------------------------------------------------------------

    @property
    def is_coasting(self) -> bool:
        return self._coasting is not None

    def settle(self, closed_gates: int | None, now: float) -> None:
        """Asks the core how many rounds it is not needed for, given how many of the next plans have a closed gate."""
        if self.engine.quiet_until <= now:
            return
        calm = self.engine.steady_rounds(closed_gates)
        if calm >= _LEAST_CALM:
            first = self.in_flight[0]
            rows = [self.live[chunk.request_id] for chunk in first.plan.chunks]
            self._coasting = Coasting(calm, rows, first.shape, self._mean)

    def coasts_on(self, now: float) -> bool:
        """Its step has ended. True: `coast` will count the round; False: the core has to be told of it now."""
        if self._coasting is None or self._coasting.is_over or self.engine.quiet_until <= now:
            return False
        assert self._due_s is None, "a step ended before the round of the one before it was counted"
        self._due_s = now
        return True

    def coast(self, now: float) -> bool:
        """Whether the core need not be asked for a plan: it coasts, and the round whose step has ended, if one has, is
        counted now. False also where that turned out to be no round like the others, since the tiers want something."""
        if self._coasting is None:
            return False
        if self._due_s is None:
            return True
        if self.engine.quiet_until <= now:
            self.catch_up()
            return False
        self._due_s = None
        self._coasting.round(now)
        return True

    def catch_up(self) -> None:
        """Tells the core of the rounds that it was not asked for. It may be asked then."""
        coasting, self._coasting = self._coasting, None
        if coasting is None:
            return
        if coasting.rounds:
            self._advance(coasting)
        if self._due_s is not None:
            due_s, self._due_s = self._due_s, None
            self.apply_first(due_s)

    def _advance(self, coasting: Coasting) -> None:
        plans = self.engine.advance(coasting.rounds, coasting.tokens(), coasting.last_s)
        last = self.in_flight[-1].index + coasting.rounds
        self.computed_tokens += (coasting.rounds - len(plans)) * coasting.chunk_tokens
        for behind, plan in enumerate(plans, 1 - len(plans)):
            self.in_flight.popleft()
            self.in_flight.append(Planned(plan, last + behind, self._shape(plan)))

    # -- what a plan means -----------------------------------------------------------------------------------------

    def begin_step(self, index: int, now: float) -> StepShape:
        """The group's step `index` begins; answers what this rank does in it."""
        if self._coasting is not None:
            return self._coasting.shape
        if not self.in_flight:
            return IDLE
        planned = self.in_flight[0]
        assert planned.index == index, f"rank {self.number} planned step {planned.index}, not {index}"
        for start in planned.plan.starts:
            live = self.live.get(start.request_id)
            if live is None:
                continue
            live.num_starts += 1
            if live.first_step_s is None:
                live.first_step_s = now
                live.others_before_s = self.others_s
                self.num_started += 1
        return planned.shape

    def _shape(self, plan: StepPlan) -> StepShape:
        width, lives = self._width, self.live
        decodes = context = 0
        chunks: list[Chunk] = []
        for chunk in plan.chunks:
            start, num_tokens = chunk.start, chunk.num_tokens
            self.computed_tokens += num_tokens
            live = lives[chunk.request_id]
            if start < live.num_prompt:
                live.computed_tokens += min(num_tokens, live.num_prompt - start)
            # A prompt's last token alone is a row as any other.
            if num_tokens == width or (num_tokens < width and start >= live.num_prompt):
                decodes += 1
                context += start + num_tokens
            else:
                chunks.append(Chunk(num_tokens, start))
        return StepShape(decodes, context, width, tuple(chunks))

    def _tokens(self, chunk: PlanChunk) -> tuple[int, ...]:
        """What the step gives for a chunk. The values differ from request to request, so that no two are taken for
        equal beyond their prompts."""
        if not chunk.samples:
            return ()
        live = self.live.get(chunk.request_id)
        if live is None:
            return (0,)  # it is over, and nobody looks
        drafts = chunk.start + chunk.num_tokens - live.num_prompt - live.output_tokens
        if drafts <= 0 or self._width == 1:
            return (live.id,)
        return (live.id,) * live.tokens_of_step(self._mean, 1 + drafts)

    def _take(self, output: Output, now: float) -> None:
        live = self.live.get(output.request_id)
        if live is None:
            return
        if output.token_ids:
            if live.first_token_s is None:
                live.first_token_s = now
                live.others_at_token_s = self.others_s
                live.cached_tokens = output.num_cached_tokens
            live.output_tokens += len(output.token_ids)
            live.last_token_s = now
        if output.finish is not None:
            live.others_at_last_s = self.others_s
            if output.error is not None:
                live.error = output.error.message
            del self.live[live.id]
            self._waits.ended(live)
            self.num_started -= live.first_step_s is not None
            self._ended(live, now)
