"""The replay of agent sessions as AgentX does it, as a state machine: no clock, no I/O, no randomness of its own.

Concurrency is the number of *lanes*. A lane holds one live session tree, sub-agents included, until all of it is over;
then it takes the next one, from its first call. The loop is closed: what follows a call is due at its completion plus
the recorded gap. A driver asks `due(now)` for the calls to make, tells `completed(...)` when they end, and sleeps until
`next_due` in between; the benchmark does so by the wall clock, the simulator by a virtual one.

The first visits begin in mid-session, at a time drawn per lane. To bring the cache into the state it would have, the
last call of each live agent before that time is made first, with one output token, then a number of further calls per
lane. When all of these are over the measured part begins: the earliest pending call fires at once, the others keep
their spacing.

Idle caps cut out recorded idle time, of one tree or of everything, while nothing of it runs; order and spacing stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.workload.metrics_record import Phase
from samovar.workload.prompts import seed_of
from samovar.workload.replay_script import Call, Script
from samovar.workload.replay_visit import Visit

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Defaults are those of AgentX, but for `warmup_calls` (10 there)."""

    concurrency: int
    start_from: float = 0.25
    start_to: float = 0.75
    """The first visits begin at a share of the session's duration, drawn evenly from this window."""
    warmup_calls: int = 0
    """Further calls of each lane before measuring, without gaps and with one output token."""
    time_scale: float = 1.0
    """Stretches recorded gaps; below 1 the agents' tools are faster."""
    tree_idle_cap_s: float = 300.0
    idle_cap_s: float = 10.0
    max_visits: int | None = None
    """Session trees to begin in all; None: as many as there is time for."""
    seed: int = 42

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"--concurrency is {self.concurrency}; it must be at least 1")
        if not 0 <= self.start_from <= self.start_to <= 1:
            raise ConfigError(
                f"--start {self.start_from:g}:{self.start_to:g}: must be FROM:TO with 0 <= FROM <= TO <= 1"
            )
        at_least = (
            ("--warmup-calls", self.warmup_calls),
            ("--time-scale", self.time_scale),
            ("--tree-idle-cap", self.tree_idle_cap_s),
            ("--idle-cap", self.idle_cap_s),
        )
        for flag, value in at_least:
            if not value >= 0:
                raise ConfigError(f"{flag} is {value:g}; it must be at least 0")
        if self.max_visits is not None and self.max_visits < 1:
            raise ConfigError(f"--sessions is {self.max_visits}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class Launch:
    """A call to make now."""

    id: int
    lane: int
    visit: int
    """How many trees the lane had begun before this one."""
    repeat: int
    """How often this tree had been begun before, on whatever lane."""
    script: Script
    call: Call
    phase: Phase
    due_s: float
    output_tokens: int
    """Length to force; 1 in warm-up."""


@dataclass(slots=True)
class _Lane:
    number: int
    visit: Visit | None = None
    visits: int = 0
    position_s: float = 0.0
    """Recorded time up to which warm-up has brought the visit."""
    warmup_left: int = 0


class Replay:
    """Call `due` first. Nothing here is safe to share between threads."""

    def __init__(self, scripts: Sequence[Script], config: ReplayConfig) -> None:
        if not scripts:
            raise ConfigError("no sessions to replay")
        self.config = config
        self.phase: Phase = "warmup"
        self.profile_began_s: float | None = None
        self.skipped_s = 0.0
        """Idle time that the caps cut out of trees, or out of everything."""
        self.finished_visits = 0
        self.begun_visits = 0
        self._scripts = scripts
        self._lanes = [_Lane(number) for number in range(config.concurrency)]
        self._running: dict[int, tuple[_Lane, Visit, Call]] = {}
        self._queue: list[tuple[_Lane, Call]] = []
        """Warm-up calls to make, whatever their conditions."""
        self._next_id = 0
        self._begun = False

    @property
    def in_flight(self) -> int:
        return len(self._running)

    @property
    def live_lanes(self) -> int:
        return sum(lane.visit is not None for lane in self._lanes)

    @property
    def finished(self) -> bool:
        """No call is left: only with `max_visits`."""
        return self._begun and not self._running and not self._queue and not self.live_lanes

    @property
    def next_due(self) -> float | None:
        """When `due` has something; None while all waits for completions."""
        if self._queue:
            return -INFINITE
        if self.phase == "warmup":
            return None if self._begun else -INFINITE
        times = [due for lane in self._lanes if lane.visit and (due := lane.visit.next_due) is not None]
        return min(times, default=None)

    def due(self, now: float) -> list[Launch]:
        """Calls to make at `now`, earliest first. Each counts as running until `completed`."""
        if not self._begun:
            self._begin(now)
        launches = [self._launch(lane, call, now, now) for lane, call in self._queue]
        self._queue.clear()
        if self.phase == "warmup":
            return launches
        while ready := self._ready(now):  # a call that starts may let another start beside it
            for due_s, number, index in ready:
                lane = self._lanes[number]
                assert lane.visit is not None
                launches.append(self._launch(lane, lane.visit.script.calls[index], due_s, now))
        return launches

    def completed(self, launch_id: int, now: float, *, end_tree: bool = False) -> None:
        """The call is over, well or not: its agent goes on. `end_tree`: the server said that the context is too long,
        so that nothing later of the tree could succeed."""
        lane, visit, call = self._running.pop(launch_id)
        if call.index in visit.running:
            visit.complete(call.index, now)
        if end_tree:
            visit.abandon()
        if self.phase == "warmup":
            self._warm_up(now)
        else:
            if visit.finished:
                self._end_visit(lane, now)
            self._cap_idle(lane, now)

    def check(self) -> None:
        """Recomputes the invariants."""
        for lane in self._lanes:
            if lane.visit is not None:
                lane.visit.check()
                if self.phase == "profile":
                    mine = {call.index for other, _, call in self._running.values() if other is lane}
                    assert mine == lane.visit.running
                    assert not lane.visit.finished

    # -- beginning

    def _begin(self, now: float) -> None:
        self._begun = True
        for lane in self._lanes:
            if not self._take_next(lane):
                continue
            assert lane.visit is not None
            script = lane.visit.script
            draw = seed_of(self.config.seed, script.tree.id, lane.number) / 2**64
            share = self.config.start_from + draw * (self.config.start_to - self.config.start_from)
            lane.position_s = min(share * script.duration_s, script.calls[-1].start_s)
            lane.warmup_left = self.config.warmup_calls
            for call in lane.visit.skip_to(lane.position_s):
                self._queue.append((lane, call))
        self._warm_up(now)

    def _take_next(self, lane: _Lane) -> bool:
        lane.visit = None
        if self.config.max_visits is not None and self.begun_visits >= self.config.max_visits:
            return False
        script = self._scripts[self.begun_visits % len(self._scripts)]
        repeat = self.begun_visits // len(self._scripts)
        lane.visit = Visit(script, lane.visits, repeat, self.config.time_scale)
        lane.visits += 1
        self.begun_visits += 1
        lane.position_s = 0.0
        return True

    # -- warm-up

    def _warm_up(self, now: float) -> None:
        """Goes on with every lane of which nothing runs, and begins to measure when none has anything left."""
        busy = {lane.number for lane, _, _ in self._running.values()} | {lane.number for lane, _ in self._queue}
        for lane in self._lanes:
            if lane.number not in busy:
                self._warm_up_lane(lane)
        if not self._running and not self._queue:
            self._begin_profile(now)

    def _warm_up_lane(self, lane: _Lane) -> None:
        """Queues the lane's next warm-up call, if it has one left; leaves it with a visit that goes on."""
        while lane.visit is not None:
            ready = lane.visit.ready()
            if ready:
                if lane.warmup_left:
                    lane.warmup_left -= 1
                    lane.position_s = max(lane.position_s, ready[0].start_s)
                    self._queue.append((lane, ready[0]))
                return
            self.finished_visits += 1
            self._take_next(lane)

    def _begin_profile(self, now: float) -> None:
        self.phase = "profile"
        self.profile_began_s = now
        visits = [(lane, lane.visit) for lane in self._lanes if lane.visit is not None]
        for lane, visit in visits:
            visit.resume(now, lane.position_s)
            self._cap_tree(visit, now)
        earliest = min((due for _, visit in visits if (due := visit.next_due) is not None), default=now)
        for _, visit in visits:
            visit.delay(now - earliest)

    # -- measuring

    def _launch(self, lane: _Lane, call: Call, due_s: float, now: float) -> Launch:
        visit = lane.visit
        assert visit is not None
        if call.index not in visit.done:
            visit.start(call.index, now)
        self._next_id += 1
        self._running[self._next_id] = (lane, visit, call)
        warm = self.phase == "warmup"
        return Launch(
            id=self._next_id,
            lane=lane.number,
            visit=visit.number,
            repeat=visit.repeat,
            script=visit.script,
            call=call,
            phase=self.phase,
            due_s=due_s,
            output_tokens=1 if warm else max(1, call.recorded.output_tokens),
        )

    def _ready(self, now: float) -> list[tuple[float, int, int]]:
        """Time, lane and index of the calls that are due, earliest first."""
        return sorted(
            (due, lane.number, index)
            for lane in self._lanes
            if lane.visit
            for index, due in lane.visit.timers.items()
            if due <= now
        )

    def _end_visit(self, lane: _Lane, now: float) -> None:
        self.finished_visits += 1
        if self._take_next(lane):
            assert lane.visit is not None
            lane.visit.begin(now)

    def _cap_idle(self, lane: _Lane, now: float) -> None:
        if lane.visit is not None and not lane.visit.running:
            self._cap_tree(lane.visit, now)
        if self._running:
            return
        earliest = self.next_due
        excess = 0.0 if earliest is None else earliest - now - self.config.idle_cap_s
        if excess > 0:
            self.skipped_s += excess
            for other in self._lanes:
                if other.visit is not None:
                    other.visit.delay(-excess)

    def _cap_tree(self, visit: Visit, now: float) -> None:
        earliest = visit.next_due
        excess = 0.0 if earliest is None else earliest - now - self.config.tree_idle_cap_s
        if excess > 0:
            self.skipped_s += excess
            visit.delay(-excess)
