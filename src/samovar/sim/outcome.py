"""What a simulated run gives: the benchmark's own records, and what only a simulator can know beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from samovar.core.stats import EngineStats
from samovar.workload.metrics_record import RequestRecord


@dataclass(frozen=True, slots=True)
class TurnTiming:
    """Where one request's time went. Seconds; they add up to its record's `end_s - start_s`."""

    front_end_s: float = 0.0
    queue_s: float = 0.0
    """Until its first step began, waiting for room, budget, siblings or the prefill cadence; without `load_s`."""
    load_s: float = 0.0
    """Waiting for a tier to bring its blocks."""
    prefill_s: float = 0.0
    """From its first step to its first token."""
    decode_s: float = 0.0
    other_ranks_s: float = 0.0
    """Step time, from its first step on, beyond what its own rank would have needed without the others' work."""

    @property
    def total_s(self) -> float:
        return self.front_end_s + self.queue_s + self.load_s + self.prefill_s + self.decode_s + self.other_ranks_s


@dataclass(frozen=True, slots=True)
class StepKind:
    count: int = 0
    seconds: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Steps of the measured part. Kinds are "decode", "mixed" (both) and "prefill" (nothing decodes)."""

    group: dict[str, StepKind] = field(default_factory=dict)
    """By what all ranks of an engine together do in a step, of all engines."""
    ranks: dict[str, StepKind] = field(default_factory=dict)
    """By what each rank does itself, as an engine's own log counts; a step lasts as long as the group's. Empty steps of
    idle ranks are left out."""
    pieces: StepKind = field(default_factory=StepKind)
    """Of what decoding requests get, one piece a step: seconds since the piece before, as clients see them."""
    limits: dict[str, float] = field(default_factory=dict)
    """Seconds of steps by what bounds them: keys of `StepCost.limits()`."""
    kind_limits: dict[str, dict[str, float]] = field(default_factory=dict)
    """The same for each kind of the group's steps."""
    idle_s: float = 0.0
    """No step ran on any rank of any engine."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One rank's KV at one moment."""

    time_s: float
    """Since the measured part began."""
    rank: int
    used_blocks: int
    cached_blocks: int
    """Cached and unused."""
    free_blocks: int
    tier_bytes: dict[str, int]
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class LinkTotals:
    name: str
    bytes: float
    busy_s: float
    """Time during which at least one transfer was under way."""
    bandwidth: float
    """Bytes per second."""
    elapsed_s: float = 0.0
    """Since the run began, warm-up included, as `bytes` and `busy_s` count."""


@dataclass(frozen=True, slots=True)
class SimRun:
    records: tuple[RequestRecord, ...]
    """In the order in which the requests ended; cut ones last."""
    timings: tuple[TurnTiming, ...]
    """Aligned with `records`."""
    steps: StepTotals
    memory: tuple[MemorySample, ...]
    links: tuple[LinkTotals, ...]
    stats: tuple[EngineStats, ...]
    """Per rank, at the end."""
    simulated_s: float
    """Of the measured part."""
    took_s: float
    """Time the simulation itself took."""
    num_steps: int
    """Of all groups, warm-up included."""
    skipped_s: float
    """Idle time that the replay's caps cut out."""
    sessions_begun: int
    sessions_finished: int
