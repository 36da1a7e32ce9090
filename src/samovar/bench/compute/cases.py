"""One thing to measure. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samovar.bench.compute.bounds import Work


@dataclass(frozen=True, slots=True)
class Case:
    op: str
    tokens: int
    depth: int
    run: Callable[[], object]
    work: Work
    cached: bool = False
    """All it touches stays in a core's cache from call to call."""
