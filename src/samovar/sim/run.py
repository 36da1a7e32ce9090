"""Runs the engine's own cores on a virtual clock: `simulate`.

One replay drives all engines: a lane's calls go to engine `lane % engines`, within which the balancer chooses the rank.
What happens next is the earliest of: a step's end, a request that reaches its core, an answer that reaches its client,
a call of the replay that is due, a transfer's end, a time a core asked to be called at, a sample of memory. At one time
results come first, then answers and requests, then plans. Nothing is drawn but by the seed: equal settings and scripts
give equal runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
import time

from samovar.base.errors import ContextLengthExceeded
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.ports import Connector
from samovar.core.replay import Recorder
from samovar.policy.retention import RetentionPolicy
from samovar.sim.arrivals import Arrivals, outcome_of
from samovar.sim.balancer import Balancer
from samovar.sim.closing import cut_off, drain, write_down
from samovar.sim.engine_tiers import build_tiers, links_of
from samovar.sim.group import Group
from samovar.sim.live import Live
from samovar.sim.memory import NUM_SAMPLES, sample_memory
from samovar.sim.outcome import MemorySample, SimRun
from samovar.sim.rank import Rank
from samovar.sim.settings import SimSettings
from samovar.sim.tally import StepTally
from samovar.workload.replay import Launch, Replay
from samovar.workload.replay_script import Script

Progress = Callable[[float], None]
MakeEngine = Callable[[EngineConfig, RetentionPolicy, Connector | None], Engine | Recorder]

_NEVER = float("inf")
_PROGRESS_STEP = 0.002


def simulate(settings: SimSettings, scripts: Sequence[Script], progress: Progress) -> SimRun:
    """`progress` gets the share that is done, 0..1. Raises ConfigError for settings that cannot work, AssertionError
    when what must hold of every run does not."""
    return Simulation(settings, scripts, progress).run()


class Simulation:
    def __init__(
        self, settings: SimSettings, scripts: Sequence[Script], progress: Progress, make_engine: MakeEngine = Engine
    ) -> None:
        """`make_engine`: a core, or one that records its calls."""
        config = replace(settings.engine, prefill_capacity_guard=settings.capacity_guard)
        self._settings = settings
        self._progress = progress
        self._replay = Replay(scripts, settings.replay)
        self._arrivals = Arrivals(config.block_tokens, settings.replay.concurrency, settings.seed)
        self._balancers = [
            Balancer(settings.balancer, settings.ranks, config.max_num_seqs, settings.stats_delay_s, settings.servers)
            for _ in range(settings.engines)
        ]
        policies = [settings.policy(config) for _ in range(settings.engines * settings.ranks)]
        self._tiers = build_tiers(settings.tiers, config, policies, settings.ranks)
        below = [one for tiers in self._tiers for one in tiers.ranks]
        self._connectors: list[Connector | None] = [one.connector for one in below] or [None] * len(policies)
        self._ranks = [
            Rank(
                number,
                make_engine(config, policy, self._connectors[number]),
                below[number].mover if below else None,
                settings.acceptance.mean_tokens,
                self._answered,
            )
            for number, policy in enumerate(policies)
        ]
        self._tally = StepTally()
        self._groups = [
            Group(
                self._ranks[first : first + settings.ranks],
                settings.steps,
                self._tally,
                fast_forward=settings.fast_forward,
            )
            for first in range(0, len(policies), settings.ranks)
        ]
        """Of one engine each; they know nothing of each other."""
        self._events: list[tuple[float, int, Callable[[Live, float], None], Live]] = []
        self._order = count()
        self._live: dict[int, Live] = {}
        """From the replay's launch to the client's end."""
        self._ended: list[Live] = []
        self._memory: list[MemorySample] = []
        self._next_sample_s = _NEVER
        self._touched: dict[int, Rank] = {}
        """Ranks that may have something to plan."""
        self._due_s = -_NEVER
        self._told = -1.0
        self._now = 0.0

    def run(self) -> SimRun:
        began = time.perf_counter()
        while not self._over():
            self._now = self._next_s()
            self._happen(self._now)
        ended_s, replay = self._now, self._replay
        profile_s = ended_s if replay.profile_began_s is None else replay.profile_began_s
        others_s = [rank.others_s for rank in self._ranks]
        cut = list(self._live.values())
        cut_off(self._ranks, cut, ended_s)
        drain(self._ranks, ended_s)
        for tiers in self._tiers:
            tiers.check()
        records, timings = write_down(
            self._ranks,
            [*self._ended, *cut],
            profile_s,
            ended_s,
            others_s,
            self._settings.front_end.output_token_s,
            self._settings.replay.concurrency,
        )
        self._progress(1.0)
        return SimRun(
            records=records,
            timings=timings,
            steps=self._tally.totals(ended_s),
            memory=tuple(self._memory),
            links=links_of(self._tiers),
            stats=tuple(rank.engine.stats() for rank in self._ranks),
            simulated_s=ended_s - profile_s,
            took_s=time.perf_counter() - began,
            num_steps=sum(group.num_steps for group in self._groups),
            skipped_s=replay.skipped_s,
            sessions_begun=replay.begun_visits,
            sessions_finished=replay.finished_visits,
        )

    # -- time ------------------------------------------------------------------------------------------------------

    @property
    def _time_over_s(self) -> float:
        """When the measured part is over; never before it began."""
        began = self._replay.profile_began_s
        return _NEVER if began is None else began + self._settings.duration_s

    def _over(self) -> bool:
        if self._replay.finished:
            return True
        over_s = self._time_over_s
        return self._now >= over_s and (not self._live or self._now >= over_s + self._settings.grace_s)

    def _next_s(self) -> float:
        """When the next thing happens: at or after now."""
        now, over_s = self._now, self._time_over_s
        # The end of the time, and of the grace after it, are looked at when they come.
        times = [self._next_sample_s, over_s if now < over_s else over_s + self._settings.grace_s]
        if self._events:
            times.append(self._events[0][0])
        times += [group.step_ends_s for group in self._groups if group.step_ends_s is not None]
        if self._tiers:
            times += self._tier_times()
        next_s = min(times)
        if now < over_s:
            # Warm-up calls are due since ever, and a call may be due that waited for its turn of the loop.
            next_s = min(next_s, max(now, self._due_s))
        assert next_s >= now, f"time runs back from {now} to {next_s} s"
        assert next_s < _NEVER, f"at {now} s {len(self._live)} requests are under way and nothing is to happen"
        return next_s

    def _tier_times(self) -> list[float]:
        times: list[float] = []
        for rank in self._ranks:
            assert rank.mover is not None
            if (ends_s := rank.mover.next_end()) is not None:
                times.append(ends_s)
            if (wake_s := rank.wake_s) is not None:
                times.append(max(wake_s, self._now))
        return times

    # -- what happens ----------------------------------------------------------------------------------------------

    def _happen(self, now: float) -> None:
        ended = [group for group in self._groups if group.step_ends_s is not None and group.step_ends_s <= now]
        self._touched = {rank.number: rank for group in ended for rank in group.end_step(now)}
        while self._events and self._events[0][0] <= now:
            _, _, happens, live = heappop(self._events)
            happens(live, now)
        if self._tiers:
            self._look_at_tiers(now)
        if self._due_s <= now and now < self._time_over_s:
            self._launch(now)
        for group, balancer in zip(self._groups, self._balancers, strict=True):
            self._work(group, balancer, group in ended, now)
        self._touched = {}
        if self._next_sample_s <= now:
            self._sample(now)

    def _work(self, group: Group, balancer: Balancer, ended: bool, now: float) -> None:
        """One engine's part. `ended`: its step did, just now."""
        between_steps = group.step_ends_s is None
        touched = [rank for rank in self._touched.values() if rank in group.ranks]
        if touched:
            group.plan(touched, now)
        if group.step_ends_s is None and (ended or touched):
            group.begin_step(now)
        if between_steps:
            for place, rank in enumerate(group.ranks):
                balancer.changed(place, rank.num_started, len(rank.live) - rank.num_started, now)

    def _at(self, at_s: float, happens: Callable[[Live, float], None], live: Live) -> None:
        heappush(self._events, (at_s, next(self._order), happens, live))

    def _look_at_tiers(self, now: float) -> None:
        for rank in self._ranks:
            wake_s = rank.wake_s
            if rank.transferred(now) or (wake_s is not None and wake_s <= now):
                self._touched[rank.number] = rank

    def _launch(self, now: float) -> None:
        was = self._replay.phase
        for launch in self._replay.due(now):
            self._start(launch, now)
        self._look_at_replay(was, now)

    def _start(self, launch: Launch, now: float) -> None:
        live = self._arrivals.make(launch, now)
        self._live[launch.id] = live
        front_end = self._settings.front_end
        at_s = now + front_end.request_s + front_end.prompt_token_s * live.num_prompt
        if at_s <= now:
            self._submit(live, now)
        else:
            self._at(at_s, self._submit, live)

    def _submit(self, live: Live, now: float) -> None:
        engine = live.launch.lane % len(self._groups)
        live.rank = engine * self._settings.ranks + self._balancers[engine].choose(live.launch, now)
        rank = self._ranks[live.rank]
        verdict = rank.submit(live, *self._arrivals.session_ids(live.launch), now)
        if verdict.error is None:
            self._touched[rank.number] = rank
            return
        live.error, live.overflow = verdict.error.message, verdict.error.code == ContextLengthExceeded.code
        self._at(now, self._received, live)

    def _answered(self, live: Live, now: float) -> None:
        """The core has ended it: its last tokens are on their way."""
        self._at(now + self._settings.front_end.output_token_s, self._received, live)

    def _received(self, live: Live, now: float) -> None:
        """The client has its whole answer, or the refusal."""
        live.end_s = now
        del self._live[live.id]
        self._ended.append(live)
        if not live.error and (reason := outcome_of(live.launch)):
            self._ranks[live.rank].outcome(live, reason, now)
        was = self._replay.phase
        self._replay.completed(live.id, now, end_tree=live.overflow)
        self._look_at_replay(was, now)

    def _look_at_replay(self, was: str, now: float) -> None:
        """After anything that the replay was told: when it wants to be asked again, and whether it began to measure."""
        due = self._replay.next_due
        self._due_s = _NEVER if due is None else due
        if was == "warmup" and self._replay.phase == "profile":
            self._tally.begin(now)
            self._next_sample_s = now

    def _sample(self, now: float) -> None:
        began_s = self._replay.profile_began_s
        assert began_s is not None
        for rank, connector in zip(self._ranks, self._connectors, strict=True):
            self._memory.append(sample_memory(rank, connector, now - began_s))
        self._next_sample_s = now + max(self._settings.duration_s / NUM_SAMPLES, 1e-3)
        share = min(1.0, (now - began_s) / self._settings.duration_s)
        if share >= self._told + _PROGRESS_STEP:
            self._told = share
            self._progress(share)
