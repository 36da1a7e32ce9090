"""The search: at each load, every optimisation alone on the baseline, then together from the best one on, then the
neighbourhood of what came out. Coarse to fine, since the product of all knobs and loads would take days.

Deterministic: the same load, hardware and rules give the same plan, on any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from samovar.base.errors import ConfigError
from samovar.sim.layouts import usable
from samovar.sim.plan_changes import LAYOUT, Change, Menu, combined, neighbours
from samovar.sim.plan_choose import attained, best_of, gain, improves, on_frontier, ranked
from samovar.sim.plan_setup import Hardware, Setup, lanes_of
from samovar.sim.plan_trial import Job, Trial

WORTH_COMBINING = -0.1
"""A change that alone loses a larger share of the tokens per second is not tried together with others."""
NEAR_LAYOUT = -0.15
"""Layouts that alone are no further behind the best one are tried once more with everything that was kept."""

Climb = Generator[list[Job], list[Trial], "Ladder"]


class Runner(Protocol):
    def run(self, jobs: Iterable[Job], progress: Callable[[float, Trial | None], None]) -> list[Trial]:
        """One trial per job, in their order. `progress` hears how many are done, a running one by its share, and the
        one that has just ended."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """How far a search is."""

    done: float
    planned: int
    """About how many there will be in all: what is tried next depends on what came out."""
    ended: Trial | None = None
    """The one that has just done so."""


Progress = Callable[[Told], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """A change on top of what was kept before it."""

    name: str
    axis: str
    trial: Trial | None
    """None when it could not be had there."""
    reason: str = ""
    """Why it could not."""
    kept: bool = False
    aims: tuple[str, ...] = ()
    """Causes of a turn's time that it is meant to shorten; () for what has no single one."""
    over: Trial | None = None
    """What it was put on, and is compared with."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """One load: from the baseline to the best configuration found."""

    concurrency: int
    baseline: Trial
    alone: tuple[Tried, ...]
    together: tuple[Tried, ...]
    """In the order tried. A kept one is the base of the next."""
    best: Trial


@dataclass(frozen=True, slots=True)
class Plan:
    ladders: tuple[Ladder, ...]
    """By concurrency."""
    trials: tuple[Trial, ...]
    """Every one, in the order first wanted."""
    frontier: tuple[Trial, ...]
    """Over all loads; slowest answers first."""
    recommended: Trial
    """Of the ladders' best: the highest rate per GPU among those that meet the SLO, else the nearest to it."""
    meets_slo: bool


def search(
    runner: Runner,
    hardware: Hardware,
    menu: Menu,
    loads: Sequence[int],
    slo: Mapping[str, float],
    progress: Progress,
) -> Plan:
    """`loads` are concurrencies. Raises ConfigError."""
    known: dict[Job, Trial] = {}
    climbs = {load: _climb(hardware, menu, load, slo) for load in loads}
    asked = {load: next(climb) for load, climb in climbs.items()}
    ladders: dict[int, Ladder] = {}
    size = 1 + len(menu.changes)
    most = len(loads) * (2 * size + 4)
    while asked:
        wanted = dict.fromkeys(job for jobs in asked.values() for job in jobs if job not in known)
        known |= _run(runner, list(wanted), len(known), most, progress)
        for load, jobs in list(asked.items()):
            try:
                asked[load] = climbs[load].send([known[job] for job in jobs])
            except StopIteration as end:
                ladders[load] = end.value
                del asked[load]
    trials = tuple(known.values())
    progress(Told(len(known), len(known)))
    climbed = tuple(ladders[load] for load in loads)
    chosen = best_of([ladder.best for ladder in climbed], slo)
    return Plan(
        ladders=climbed,
        trials=trials,
        frontier=tuple(on_frontier(trials)),
        recommended=chosen,
        meets_slo=attained(chosen.point, slo) >= 1,
    )


def _run(runner: Runner, jobs: Sequence[Job], before: int, most: int, progress: Progress) -> dict[Job, Trial]:
    planned = max(most, before + len(jobs))
    trials = runner.run(jobs, lambda done, ended: progress(Told(before + done, planned, ended)))
    return dict(zip(jobs, trials, strict=True))


def _climb(hardware: Hardware, menu: Menu, load: int, slo: Mapping[str, float]) -> Climb:
    """Yields jobs, is sent their trials, returns the ladder."""
    base = menu.baseline
    alone, jobs = _offered(hardware, base, menu.changes, load)
    baseline, *trials = yield [Job(base, load), *jobs]
    alone = _filled(alone, trials, baseline)
    best, kept = baseline, list[Change]()
    taken: frozenset[str] = frozenset()
    together: list[Tried] = []
    for change in _order(menu.changes, alone, baseline, slo):
        setup = combined(best.job.setup, change, taken)
        if setup is None:
            continue
        reason = _not_there(hardware, setup, load)
        if reason:
            together.append(Tried(change.name, change.axis, None, reason, aims=change.aims))
            continue
        (trial,) = yield [Job(setup, load)]
        better = improves(trial, best, slo)
        together.append(Tried(change.name, change.axis, trial, kept=better, aims=change.aims, over=best))
        if better:
            best, taken = trial, taken | {change.axis}
            kept.append(change)
    finer = [*_other_layouts(menu, baseline, alone, kept), *neighbours(best.job.setup, _lanes(hardware, best.job))]
    last, jobs = _offered(hardware, best.job.setup, finer, load)
    last = _filled(last, (yield jobs), best) if jobs else last
    found = best_of([best, *(one.trial for one in (*last, *alone) if one.trial)], slo)
    if not improves(found, best, slo):
        found = best
    together += [replace(one, kept=found is not best and one.trial is found) for one in last]
    if found is not best and not any(one.kept and one.trial is found for one in together):
        only = next(one for one in alone if one.trial is found)
        together.append(replace(only, name=f"{only.name} alone, in place of all", kept=True, over=best))
    return Ladder(load, baseline, tuple(alone), tuple(together), found)


def _lanes(hardware: Hardware, job: Job) -> int:
    """Of a rank."""
    return lanes_of(hardware, job.setup, job.concurrency) // job.setup.layout.dp


def _offered(hardware: Hardware, base: Setup, changes: Sequence[Change], load: int) -> tuple[list[Tried], list[Job]]:
    """Each change alone on `base`, and the jobs of those that can be had, in the same order."""
    tried: list[Tried] = []
    jobs: list[Job] = []
    for change in changes:
        setup = change.apply(base)
        reason = _not_there(hardware, setup, load)
        tried.append(Tried(change.name, change.axis, None, reason, aims=change.aims))
        if not reason:
            jobs.append(Job(setup, load))
    return tried, jobs


def _filled(tried: Sequence[Tried], trials: Sequence[Trial], over: Trial) -> list[Tried]:
    left = iter(trials)
    return [one if one.reason else replace(one, trial=next(left), over=over) for one in tried]


def _not_there(hardware: Hardware, setup: Setup, load: int) -> str:
    """Why the configuration cannot be had at this load; "" when it can."""
    problem = usable(hardware, setup)
    if problem is not None:
        return problem.reason
    try:
        lanes_of(hardware, setup, load)
    except ConfigError as error:
        return error.message
    return ""


def _order(
    changes: Sequence[Change], alone: Sequence[Tried], baseline: Trial, slo: Mapping[str, float]
) -> list[Change]:
    """The best one alone first. What could not be had on the baseline comes last: another layout may take it."""
    offered = [(change, one.trial) for change, one in zip(changes, alone, strict=True) if change.combines]
    useful = [(change, trial) for change, trial in offered if trial and _is_useful(change, trial, baseline, slo)]
    places = {id(trial): at for at, trial in enumerate(ranked([trial for _, trial in useful], slo))}
    useful.sort(key=lambda one: places[id(one[1])])
    return [*(change for change, _ in useful), *(change for change, trial in offered if trial is None)]


def _is_useful(change: Change, trial: Trial, baseline: Trial, slo: Mapping[str, float]) -> bool:
    """Layouts compete with each other; other knobs may help on a layout where they do not on the baseline."""
    if improves(trial, baseline, slo):
        return True
    more = gain(trial.point.tokens_per_gpu_s, baseline.point.tokens_per_gpu_s)
    return change.axis != LAYOUT and more > WORTH_COMBINING


def _other_layouts(menu: Menu, baseline: Trial, alone: Sequence[Tried], kept: Sequence[Change]) -> list[Change]:
    """The baseline's own layout is one of them where it was left."""
    own = menu.own_layout
    rates = {
        one.name: one.trial.point.tokens_per_gpu_s for one in alone if one.axis == LAYOUT and one.trial is not None
    }
    rates[own.name] = baseline.point.tokens_per_gpu_s
    most = max(rates.values())
    chosen = {change.name for change in kept if change.axis == LAYOUT} or {own.name}
    return [
        change
        for change in (own, *menu.changes)
        if change.name in rates and change.name not in chosen and gain(rates[change.name], most) > NEAR_LAYOUT
    ]
