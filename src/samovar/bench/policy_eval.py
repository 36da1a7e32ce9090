"""Judges retention policies on recorded sessions: `samovar policy eval`.

A *point* is one capacity and one seed of session starts. At every point each policy is replayed, beside LRU, beside one
that knows when every block is used next (Belady), and beside a cache without limit. What a policy is worth is the
share of the gap between LRU and Belady that it closes, where LRU leaves one worth closing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from samovar.base.errors import ConfigError
from samovar.bench.policy_eval_hints import hint_giver
from samovar.bench.policy_eval_replay import Hits, replay, replay_belady
from samovar.bench.policy_eval_trace import AskedSessions, Event, begin, next_uses
from samovar.policy.choose import choose, policy_names
from samovar.policy.lru import LRU

Progress = Callable[[int], None]
BELADY = "belady"
REFERENCES = ("lru", BELADY)
"""Replayed at every point: hints do not change them."""


class EvalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Raises ConfigError naming the flag."""

    capacity: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """Shares of all distinct blocks."""
    policies: tuple[str, ...] = ("lru", "ttl", "agent", BELADY)
    hints: tuple[str, ...] = ("none",)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    mean_start_gap_s: float = 60.0
    lru_range: tuple[float, float] = (0.4, 0.85)
    """The gap counts at points where LRU's hit rate lies in it."""

    def __post_init__(self) -> None:
        for share in self.capacity:
            if not 0.0 < share <= 1.0:
                raise ConfigError(f"--capacity has {share:g}; it must be more than 0 and at most 1")
        for flag, values in (("--capacity", self.capacity), ("--policy", self.policies), ("--hints", self.hints)):
            if not values or len(set(values)) < len(values):
                raise ConfigError(f"{flag} is {', '.join(map(str, values)) or 'empty'}; give at least one, each once")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError("--seeds names no seed, or one twice")
        if not 0.0 < self.mean_start_gap_s < 1e9:
            raise ConfigError(f"--mean-start-gap is {self.mean_start_gap_s:g}; it must be more than 0 seconds")
        low, high = self.lru_range
        if not 0.0 <= low < high <= 1.0:
            raise ConfigError(f"--lru-range is {100 * low:g}-{100 * high:g}; give two percentages, the lower one first")
        for mode in self.hints:
            hint_giver(mode, 0)
        for name in self.judged:
            try:
                choose(name, 1)
            except ConfigError as error:
                known = ", ".join((*policy_names(), BELADY))
                raise ConfigError(f"--policy: {error.message} (here: {known})") from None

    @property
    def judged(self) -> tuple[str, ...]:
        return tuple(name for name in self.policies if name not in REFERENCES)

    @property
    def num_replays(self) -> int:
        return len(self.seeds) * (1 + len(self.capacity) * (2 + len(self.judged) * len(self.hints)))


class Point(msgspec.Struct, frozen=True):
    """Hit rates are shares of all prompt tokens."""

    capacity: float
    capacity_blocks: int
    seed: int
    ceiling: float
    lru: float
    belady: float
    hit: dict[str, float]
    """By "policy/hints"."""

    def closed(self, name: str) -> float:
        """The share of the gap that a policy closes; 0.0 where there is none."""
        gap = self.belady - self.lru
        return (self.hit[name] - self.lru) / gap if gap > 0.0 else 0.0

    def against_lru(self, name: str) -> float:
        return self.hit[name] - self.lru


class EvalResult(msgspec.Struct, frozen=True):
    num_sessions: int
    num_requests: int
    num_blocks: int
    """Distinct ones."""
    input_tokens: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One policy under one kind of hints, over all points."""

    closed: float | None
    """Mean share of the gap closed over the points in the range; None when there are none."""
    num_points: int
    """In the range."""
    worst: float
    """The least difference to LRU's hit rate, over all points."""
    worst_point: Point


def name_of(policy: str, hints: str) -> str:
    return f"{policy}/{hints}"


def evaluate(config: EvalConfig, asked: AskedSessions, progress: Progress) -> EvalResult:
    """`progress` is told how many replays are done."""
    points: list[Point] = []
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        progress(done)

    for seed in config.seeds:
        events = begin(asked, seed, config.mean_start_gap_s)
        uses = next_uses(asked, events)
        ceiling = replay(asked, events, asked.num_blocks, LRU(), hint_giver("none", seed))
        count()
        for share in config.capacity:
            blocks = max(1, round(share * asked.num_blocks))
            lru = replay(asked, events, blocks, LRU(), hint_giver("none", seed))
            count()
            belady = replay_belady(asked, events, blocks, uses)
            count()
            hit: dict[str, float] = {}
            for policy in config.judged:
                for mode in config.hints:
                    hit[name_of(policy, mode)] = _judge(policy, mode, asked, events, blocks, seed).share
                    count()
            points.append(Point(share, blocks, seed, ceiling.share, lru.share, belady.share, hit))
    return EvalResult(asked.num_sessions, len(asked.requests), asked.num_blocks, asked.input_tokens, tuple(points))


def _judge(policy: str, mode: str, asked: AskedSessions, events: list[Event], blocks: int, seed: int) -> Hits:
    return replay(asked, events, blocks, choose(policy, blocks, _refuse), hint_giver(mode, seed))


def verdict(result: EvalResult, name: str, lru_range: tuple[float, float]) -> Verdict:
    inside = in_range(result.points, lru_range)
    closed = sum(point.closed(name) for point in inside) / len(inside) if inside else None
    worst = min(result.points, key=lambda point: point.against_lru(name))
    return Verdict(closed, len(inside), worst.against_lru(name), worst)


def in_range(points: Sequence[Point], lru_range: tuple[float, float]) -> list[Point]:
    low, high = lru_range
    return [point for point in points if low <= point.lru <= high]


def _refuse(fault: str) -> None:
    """A policy with a fault would be judged as what it falls back to."""
    raise ConfigError(fault.partition("; it is not asked")[0], param="policy")
