"""What a report draws: one or more runs, each with its points and the requests behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from samovar.workload.metrics import Point
from samovar.workload.metrics_record import RequestRecord


@dataclass(frozen=True, slots=True)
class ReportRun:
    name: str
    facts: Mapping[str, str]
    """What was run on what, for the reader: revision, machine, server, traces."""
    points: tuple[Point, ...]
    """By concurrency."""
    records: tuple[RequestRecord, ...]

    def of(self, point: Point) -> list[RequestRecord]:
        """The measured requests of one concurrency."""
        return [r for r in self.records if r.concurrency == point.concurrency and r.phase == "profile"]


def named_apart(runs: Iterable[ReportRun]) -> list[ReportRun]:
    """Runs of one name get numbers, since pictures tell them apart by it."""
    found: list[ReportRun] = []
    taken: set[str] = set()
    for run in runs:
        name, number = run.name, 1
        while name in taken:
            number += 1
            name = f"{run.name} ({number})"
        taken.add(name)
        found.append(replace(run, name=name))
    return found


def frontier(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other reaches on both axes, larger being better; by falling x."""
    best = -1.0
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda p: (-p[0], -p[1])):
        if y > best:
            kept.append((x, y))
            best = y
    return kept


def in_flight(records: Sequence[RequestRecord]) -> tuple[list[float], list[int]]:
    """Times and, from each on, the number of requests under way."""
    changes = sorted([(r.start_s, 1) for r in records] + [(r.end_s, -1) for r in records])
    times: list[float] = []
    counts: list[int] = []
    now = 0
    for at, change in changes:
        now += change
        if times and times[-1] == at:
            counts[-1] = now
        else:
            times.append(at)
            counts.append(now)
    return times, counts
