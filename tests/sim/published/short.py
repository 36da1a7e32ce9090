"""Rows of the published figures, simulated for a part of their length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.sim_published_form import Figure, Row, Seen
from benchmarks.sim_published_rows import ROWS


def row(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def seen(name: str, share: float, runs: Iterable[str] | None = None) -> dict[str, Seen]:
    found = row(name)
    return {run: found.runs[run](share, lambda done: None) for run in (found.runs if runs is None else runs)}


def judged(name: str, share: float) -> dict[str, Figure]:
    return {figure.name: figure for figure in row(name).judge(seen(name, share))}


def assert_met(figures: Mapping[str, Figure], *names: str) -> None:
    """Those that are named, or all."""
    for name in names or figures:
        figure = figures[name]
        assert figure.verdict == "met", f"{name}: {figure.shown}, to be {figure.band.words} of {figure.published}"


def assert_known_miss(figures: Mapping[str, Figure], name: str, low: float, high: float) -> None:
    """It misses, says why, and is where it was."""
    figure = figures[name]
    assert figure.verdict == "miss" and figure.reason, f"{name}: {figure.shown} is no miss any more, or has no reason"
    assert low <= figure.measured <= high, f"{name}: {figure.shown} moved"
