"""Which of several simulated points is the better one.

Between points at one load: first the one nearest to the SLO, then the higher rate of tokens per second and GPU, and
where that differs by less than NEAR, the higher interactivity from end to end. The queue counts in that, so that no
tie is won by keeping requests out of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samovar.sim.plan_trial import Trial
from samovar.workload.metrics import Point

NEAR = 0.02
MOST_LOST = 0.1
"""A point that lost a larger share of its requests meets no SLO: the slow ones are missing from its figures."""


def attained(point: Point, slo: Mapping[str, float]) -> float:
    """1 when every limit is kept at P90; else the smallest ratio of a figure to its limit."""
    if not point.ok:
        return 0.0
    worst = 1.0
    rates = {"interactivity": point.p90_interactivity, "e2e_interactivity": point.p90_e2e_interactivity}
    times = {"ttft_s": point.ttft_s.p90, "itl_s": point.itl_s.p90, "latency_s": point.latency_s.p90}
    for name, limit in slo.items():
        rate, time = rates.get(name), times.get(name)
        if rate is not None:
            worst = min(worst, rate / limit)
        if time is not None and time > 0:
            worst = min(worst, limit / time)
    lost = (point.failed + point.cut) / point.issued if point.issued else 0.0
    return worst * (1 - lost) if lost > MOST_LOST else worst


def best_of(trials: Sequence[Trial], slo: Mapping[str, float]) -> Trial:
    """The first one among equals. Needs at least one."""
    reached = [round(attained(trial.point, slo), 2) for trial in trials]
    most = max(reached)
    nearest = [trial for trial, one in zip(trials, reached, strict=True) if one == most]
    fastest = max(trial.point.tokens_per_gpu_s for trial in nearest)
    near = [trial for trial in nearest if trial.point.tokens_per_gpu_s >= (1 - NEAR) * fastest]
    return max(near, key=lambda trial: trial.point.p90_e2e_interactivity or 0.0)


def improves(new: Trial, old: Trial, slo: Mapping[str, float]) -> bool:
    """Nearer to the SLO, or the better one with at least NEAR / 2 more tokens per second and GPU or NEAR more
    interactivity from end to end."""
    if round(attained(new.point, slo), 2) != round(attained(old.point, slo), 2):
        return attained(new.point, slo) > attained(old.point, slo)
    return best_of((old, new), slo) is new and (
        gain(new.point.tokens_per_gpu_s, old.point.tokens_per_gpu_s) > NEAR / 2
        or gain(new.point.p90_e2e_interactivity, old.point.p90_e2e_interactivity) > NEAR
    )


def ranked(trials: Sequence[Trial], slo: Mapping[str, float]) -> list[Trial]:
    """The best one first, then the best one of the others, and so on."""
    left, found = list(trials), list[Trial]()
    while left:
        best = best_of(left, slo)
        left = [trial for trial in left if trial is not best]
        found.append(best)
    return found


def on_frontier(trials: Sequence[Trial]) -> list[Trial]:
    """Those that no other reaches in both P90 interactivity and tokens per second and GPU; slowest answers first."""
    kept: list[Trial] = []
    for trial in sorted(trials, key=lambda t: (-(t.point.p90_interactivity or 0.0), -t.point.tokens_per_gpu_s)):
        if not kept or trial.point.tokens_per_gpu_s > kept[-1].point.tokens_per_gpu_s:
            kept.append(trial)
    return kept[::-1]


def gain(new: float | None, old: float | None) -> float:
    """As a share of the old one; 0 where one is not known."""
    return new / old - 1 if new is not None and old else 0.0
