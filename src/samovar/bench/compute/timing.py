"""Takes the time of functions, alternating between them so that what else the machine does hits all alike. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
import time

Run = Callable[[], object]
Clock = Callable[[], float]

SHORTEST_SAMPLE_S = 1e-3
MOST_CALLS = 10_000


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one call."""

    median_s: float
    best_s: float
    repeats: int


def alternate(runs: Sequence[Run], repeats: int, clock: Clock = time.perf_counter) -> list[Timing]:
    """Each runs once to warm up, then `repeats` times in turn with the others. What takes less than a millisecond is
    called several times per sample."""
    calls = [_calls(run, clock) for run in runs]
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, count, own in zip(runs, calls, samples, strict=True):
            own.append(_seconds(run, count, clock))
    return [Timing(median(own), min(own), repeats) for own in samples]


def measure(run: Run, repeats: int, clock: Clock = time.perf_counter) -> Timing:
    return alternate([run], repeats, clock)[0]


def _calls(run: Run, clock: Clock) -> int:
    _seconds(run, 1, clock)  # the first call also builds what later ones reuse
    once = _seconds(run, 1, clock)
    return min(MOST_CALLS, max(1, round(SHORTEST_SAMPLE_S / max(once, 1e-9))))


def _seconds(run: Run, calls: int, clock: Clock) -> float:
    begin = clock()
    for _ in range(calls):
        run()
    return (clock() - begin) / calls
