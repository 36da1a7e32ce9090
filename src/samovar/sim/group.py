"""Ranks in lockstep: a step of the group begins when the one before it has ended on every rank, and lasts as long as
its slowest rank. A rank without a plan for it runs an empty step with the others.

Steps are counted per wave: 0 when the group begins to work, so an idle group admits at once. As a real driver does, a
rank plans while the step before runs; with depth 1 it plans when that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from samovar.core.cadence import group_gate
from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import StepCost, StepModel
from samovar.sim.rank import IDLE, NO_STEP, Rank
from samovar.sim.tally import StepTally


class Group:
    __slots__ = (
        "_cost", "_depth", "_fast_forward", "_interval", "_model", "_shapes", "_tally", "index", "num_steps", "ranks",
        "step_ends_s",
    )  # fmt: skip

    def __init__(self, ranks: Sequence[Rank], model: StepModel, tally: StepTally, *, fast_forward: bool) -> None:
        self.ranks = ranks
        self.step_ends_s: float | None = None
        """None while no step runs."""
        self.index = 0
        """Of the step that runs, or the next to begin, in its wave."""
        self.num_steps = 0
        self._model = model
        self._tally = tally
        config = ranks[0].engine.config
        self._depth = config.depth
        self._fast_forward = fast_forward
        self._interval = config.prefill_schedule_interval
        self._shapes: list[StepShape] = []
        self._cost: StepCost | None = None

    def end_step(self, now: float) -> list[Rank]:
        """The step that runs has ended; its results are applied. Returns the ranks that may have something to plan."""
        assert self.step_ends_s is not None and self._cost is not None
        self._account(self._cost, self._shapes)
        self.step_ends_s = None
        for rank in self.ranks:
            if rank.coasts_on(now):
                continue
            rank.catch_up()
            if rank.in_flight and rank.in_flight[0].index == self.index:
                rank.apply_first(now)
                while rank.in_flight and rank.in_flight[0].index == NO_STEP:
                    rank.apply_first(now)
        self.index += 1
        return list(self.ranks)

    def plan(self, ranks: Sequence[Rank], now: float) -> None:
        """What these ranks can plan now."""
        for rank in ranks:
            if rank.coast(now):
                continue
            self._plan(rank, now)
            if self._fast_forward and len(rank.in_flight) == self._depth:
                rank.settle(-rank.next_free % self._interval if len(self.ranks) > 1 else None, now)

    def _plan(self, rank: Rank, now: float) -> None:
        running = self.step_ends_s is not None
        rank.planned_s = now
        while True:
            if self._is_idle(rank, now):
                return
            index = rank.next_free
            if index == NO_STEP:
                index = self.index + running
            if index >= self.index + self._depth:
                rank.planned_s = now  # asked in vain: the end of a step is what helps
                return
            gate = group_gate(index, self._interval) if len(self.ranks) > 1 else None
            if rank.plan(index, gate, now) is None:
                return
            while rank.in_flight and rank.in_flight[0].index == NO_STEP:
                rank.apply_first(now)

    def _is_idle(self, rank: Rank, now: float) -> bool:
        """Whether there is nothing that a plan could be of."""
        if rank.engine.has_work:
            return False
        return rank.mover is None or (self._fast_forward and now < rank.engine.quiet_until)

    def begin_step(self, now: float) -> None:
        """Begins the next step if any rank has a plan for it; else the wave is over. None may run."""
        assert self.step_ends_s is None
        shapes = [rank.begin_step(self.index, now) for rank in self.ranks]
        if all(shape is IDLE for shape in shapes):
            self.index = 0
            self._tally.idle(self, now)
            return
        self._tally.busy(self, now)
        self._shapes, self._cost = shapes, self._model.step_s(shapes)
        assert self._cost.total_s > 0, f"a step of {shapes} takes {self._cost.total_s} s"
        self.step_ends_s = now + self._cost.total_s
        self.num_steps += 1

    def _account(self, cost: StepCost, shapes: list[StepShape]) -> None:
        """Also what each rank's step took beyond its own needs: what the same step would take were the others idle."""
        self._tally.step(shapes, cost)
        if len(shapes) == 1:
            return
        alone = [IDLE] * len(shapes)
        busy = sum(shape is not IDLE for shape in shapes)
        for number, shape in enumerate(shapes):
            if shape is IDLE or busy == 1:
                continue
            alone[number] = shape
            self.ranks[number].others_s += max(0.0, cost.total_s - self._model.step_s(alone).total_s)
            alone[number] = IDLE
