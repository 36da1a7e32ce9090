"""The evidence behind what bounds a simulated point: for each cause that matters a sentence with the figures it rests
on, and where the slowest turns spend their time. Pure; `report_limits` divides the time, this says how one can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from samovar.sim.outcome import LinkTotals, MemorySample, SimRun, TurnTiming
from samovar.sim.report_limits import Explained, mean_timing
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.quantities import bytes_text

LEAST_SHARE = 0.05
"""Of a turn's time; what is less needs no evidence."""
SLOW_SHARE = 0.1
"""The slowest turns are so many of all."""
LEAST_TURNS = 10
"""Fewer have no slowest tenth."""

KIND_SHARE = 0.1
"""Of a cause's time; kinds of steps with less of it are not named."""

_PARTS = ("front_end_s", "queue_s", "load_s", "prefill_s", "decode_s", "other_ranks_s")
_WORDS = ("the front end", "the queue", "loading KV", "prefill", "decoding", "waiting for other ranks")


@dataclass(frozen=True, slots=True)
class Evidence:
    cause: str
    share: float
    """Of a turn's time."""
    told: str


@dataclass(frozen=True, slots=True)
class SlowTurns:
    """The slowest tenth of the measured turns that ended well, which is what percentiles show; none of few turns."""

    count: int
    least_s: float
    turn: TurnTiming
    """Mean of them."""

    @property
    def told(self) -> str:
        if not self.count:
            return f"fewer than {LEAST_TURNS} turns ended well, which have no slowest tenth"
        parts = {word: getattr(self.turn, part) for word, part in zip(_WORDS, _PARTS, strict=True)}
        first, second = sorted(parts, key=lambda word: -parts[word])[:2]
        total_s = max(self.turn.total_s, 1e-12)
        turns = f"{self.count} turns take" if self.count > 1 else "turn takes"
        return (
            f"the slowest {turns} {_seconds(self.least_s)}{' and more' if self.count > 1 else ''}: {first} "
            f"{parts[first] / total_s:.0%}, {second} {parts[second] / total_s:.0%}"
        )


@dataclass(frozen=True, slots=True)
class TierUse:
    """Of one tier, all ranks together."""

    tier: str
    most_bytes: int
    mean_bytes: float


def verdict(run: SimRun, explained: Explained) -> str:
    """One sentence: what bounds it most, and how one can tell."""
    if not explained.turns:
        return none_ended(run)
    found = evidence(run, explained)
    if not found:
        return explained.verdict
    return f"{found[0].cause}, {found[0].share:.0%} of a turn: {found[0].told}"


def none_ended(run: SimRun) -> str:
    """Of a run without a turn to measure: how long its steps take."""
    steps = [f"{_KINDS[kind]} take {_seconds(step.p50_s)} each" for kind, step in run.steps.group.items() if step.count]
    return f"no request ended well in time: {', '.join(steps)}" if steps else "no request ended well in time"


def evidence(run: SimRun, explained: Explained) -> tuple[Evidence, ...]:
    """For each cause with LEAST_SHARE of a turn, largest first."""
    return tuple(
        Evidence(cause, share, _TELLERS.get(cause, _steps(cause))(run))
        for cause, share in explained.causes.items()
        if share >= LEAST_SHARE
    )


def slow_turns(run: SimRun) -> SlowTurns:
    timings = sorted((timing for _, timing in _measured(run)), key=lambda timing: timing.total_s)
    if len(timings) < LEAST_TURNS:
        return SlowTurns(0, 0.0, TurnTiming())
    slow = timings[-round(SLOW_SHARE * len(timings)) :]
    return SlowTurns(len(slow), slow[0].total_s, mean_timing(slow))


def tier_use(run: SimRun) -> tuple[TierUse, ...]:
    """In the order of the tiers; () without any."""
    by_tier: dict[str, dict[float, int]] = {}
    for sample in run.memory:
        for tier, num_bytes in sample.tier_bytes.items():
            at = by_tier.setdefault(tier, {})
            at[sample.time_s] = at.get(sample.time_s, 0) + num_bytes
    return tuple(TierUse(tier, max(at.values()), sum(at.values()) / len(at)) for tier, at in by_tier.items())


def busiest_link(run: SimRun) -> LinkTotals | None:
    """By the share of time in which something was under way."""
    return max(run.links, key=lambda link: link.busy_s / max(link.elapsed_s, 1e-12), default=None)


def _measured(run: SimRun) -> list[tuple[RequestRecord, TurnTiming]]:
    return [
        (record, timing)
        for record, timing in zip(run.records, run.timings, strict=True)
        if record.phase == "profile" and record.status == "ok"
    ]


def _kv_capacity(run: SimRun) -> str:
    records = [record for record, _ in _measured(run)]
    computed = sum(record.prompt_tokens - (record.cached_tokens or 0) for record in records)
    lost = sum(max(0, (record.ceiling_tokens or 0) - (record.cached_tokens or 0)) for record in records)
    losers = sum(record.hit_class in ("part", "lost") for record in records)
    told = (
        f"{lost / max(computed, 1):.0%} of the prompt tokens that were computed had been computed before, in {losers} "
        f"of {len(records)} turns"
    )
    waiting = [sample for sample in run.memory if sample.waiting]
    if waiting:
        room = sum(sample.free_blocks + sample.cached_blocks for sample in waiting)
        blocks = sum(_blocks(sample) for sample in waiting)
        told += f"; while requests wait, {room / max(blocks, 1):.0%} of a rank's KV is not in use"
    return told + _in_tiers(run)


def _blocks(sample: MemorySample) -> int:
    return sample.used_blocks + sample.cached_blocks + sample.free_blocks


def _in_tiers(run: SimRun) -> str:
    uses = [f"{use.tier} up to {bytes_text(use.most_bytes)}" for use in tier_use(run)]
    return f"; tiers hold {', '.join(uses)}" if uses else "; no tier is there to keep them"


def _scheduling(run: SimRun) -> str:
    samples = run.memory
    if not samples:
        return f"a turn waits {_seconds(mean_timing([t for _, t in _measured(run)]).queue_s)} for its first step"
    count = len(samples)
    blocks = sum(_blocks(sample) for sample in samples)
    return (
        f"a rank has {sum(s.waiting for s in samples) / count:.1f} requests waiting and "
        f"{sum(s.running for s in samples) / count:.1f} running, while requests hold "
        f"{sum(s.used_blocks for s in samples) / max(blocks, 1):.0%} of its KV"
    )


def _link(run: SimRun) -> str:
    loads = [timing.load_s for _, timing in _measured(run) if timing.load_s > 0.0]
    mean_s = sum(loads) / len(loads) if loads else 0.0
    told = f"{len(loads)} of {len(_measured(run))} turns wait {_seconds(mean_s)} on average for KV from a slower tier"
    link = busiest_link(run)
    if link is None:
        return told
    share = link.busy_s / max(link.elapsed_s, 1e-12)
    return f"{told}; {link.name} is at work {share:.0%} of the time, the most of all links"


def _other_ranks(run: SimRun) -> str:
    turn = mean_timing([timing for _, timing in _measured(run)])
    own_s = turn.prefill_s + turn.decode_s
    return f"steps take {turn.other_ranks_s / max(own_s, 1e-12):.0%} longer than a rank's own part of them needs"


def _front_end(run: SimRun) -> str:
    turn = mean_timing([timing for _, timing in _measured(run)])
    return f"{_seconds(turn.front_end_s)} of each turn, whatever the engine does"


def _steps(cause: str) -> Callable[[SimRun], str]:
    """For what bounds steps: how much of each kind of step it is."""

    def told(run: SimRun) -> str:
        return ", ".join(_of_kinds(run, cause))

    return told


def _of_kinds(run: SimRun, cause: str) -> Sequence[str]:
    found: list[tuple[float, str]] = []
    for kind, limits in run.steps.kind_limits.items():
        step = run.steps.group.get(kind)
        total_s = sum(limits.values())
        if step is None or not total_s:
            continue
        words = f"{limits.get(cause, 0.0) / total_s:.0%} of {_KINDS[kind]}, which take {_seconds(step.p50_s)} each"
        found.append((limits.get(cause, 0.0), words))
    whole_s = sum(seconds for seconds, _ in found)
    return [words for seconds, words in sorted(found, reverse=True) if seconds > KIND_SHARE * whole_s]


_KINDS = {
    "decode": "steps that only decode",
    "mixed": "steps that also prefill",
    "prefill": "steps that only prefill",
}
_TELLERS: dict[str, Callable[[SimRun], str]] = {
    "KV capacity": _kv_capacity,
    "scheduling": _scheduling,
    "link": _link,
    "other ranks": _other_ranks,
    "front end": _front_end,
}


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"
