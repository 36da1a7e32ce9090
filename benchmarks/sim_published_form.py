"""What a published figure is compared by: the band it should fall into, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Progress = Callable[[float], None]
"""Told the share that is done, 0..1."""
Seen = dict[str, float]
"""What one run showed, by name; units are in the names."""
Verdict = Literal["met", "miss"]


@dataclass(frozen=True, slots=True)
class Band:
    low: float
    high: float
    words: str
    """As the table shows it."""


def within(published: float, share: float) -> Band:
    return Band(published * (1 - share), published * (1 + share), f"±{100 * share:g} %")


def points(published: float, distance: float) -> Band:
    return Band(published - distance, published + distance, f"±{distance:g} points")


def between(low: float, high: float) -> Band:
    return Band(low, high, f"{low:g} to {high:g}")


def at_least(low: float) -> Band:
    return Band(low, float("inf"), f"at least {low:g}")


def at_most(high: float) -> Band:
    return Band(float("-inf"), high, f"at most {high:g}")


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    published: str
    """As it was published, with its unit."""
    measured: float
    band: Band
    unit: str = ""
    digits: int = 3
    reason: str = ""
    """Why it misses, where that is known."""
    otherwise: str = ""
    """What it would be but for the reason, where that was simulated."""

    @property
    def verdict(self) -> Verdict:
        return "met" if self.band.low <= self.measured <= self.band.high else "miss"

    @property
    def shown(self) -> str:
        number = f"{self.measured:,.0f}" if abs(self.measured) >= 1000 else f"{self.measured:.{self.digits}g}"
        return f"{number} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Row:
    """One published comparison: runs that do not depend on each other, and what they say together."""

    name: str
    what: str
    """Model, hardware, flags, load, source."""
    runs: Mapping[str, Callable[[float, Progress], Seen]]
    """By name. The first argument is the share of the whole length to simulate, up to 1."""
    judge: Callable[[Mapping[str, Seen]], tuple[Figure, ...]]
    fitted: bool = False
