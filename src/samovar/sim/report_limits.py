"""What bounds a simulated point: the time of its turns, divided by what would have to be better to shorten it.

A turn waits in the front end, in the queue, for a tier, and for steps. Step time is divided as the steps of the run
were: by bandwidth, compute, collectives and so on, the other ranks' part kept apart. Two causes are no hardware rates
and are taken out of the others: prompt tokens that had been computed before and were lost (KV capacity: the steps that
compute them again hold up everyone), and a queue that formed while there was no room for one more context (KV
capacity) or while there was (slots, budget and cadence).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from samovar.sim.outcome import MemorySample, SimRun, StepKind, StepTotals, TurnTiming
from samovar.workload.metrics_record import RequestRecord

CAUSES = {
    "KV capacity": "contexts that were there are computed again, or requests wait for blocks",
    "scheduling": "requests wait for slots, the token budget or the prefill cadence while KV is free",
    "link": "KV comes back from a slower tier",
    "compute": "operations per second of the device",
    "bandwidth": "bytes per second of the device's memory",
    "collectives": "exchanges between ranks",
    "other ranks": "a step lasts as long as the slowest rank of the group",
    "launch": "kernel launches and small kernels",
    "prefill floor": "what any step with a prompt costs beyond its work",
    "drafts": "the draft layer",
    "host": "planning, sampling and agreeing on a step",
    "measured": "steps that were measured as a whole",
    "front end": "API, tokenising and detokenising",
}
"""Every cause, in words."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Means over the measured requests that ended well."""

    turns: int
    turn: TurnTiming
    """Seconds of a turn by where they went."""
    causes: dict[str, float]
    """Shares of a turn's time by cause, largest first; they add up to 1, or are empty without a turn."""
    kv_used_share: float
    """Of all KV blocks, by requests, over time and ranks."""
    kv_kept_share: float
    """Of all KV blocks, by unused but cached contexts."""
    lost_share: float
    """Of all prompt tokens: computed although they had been before."""
    idle_share: float
    """Of the run, in which no step ran."""

    @property
    def limit(self) -> str:
        return next(iter(self.causes), "nothing")

    @property
    def verdict(self) -> str:
        if not self.causes:
            return "no request ended well"
        (first, share), *others = self.causes.items()
        told = f"{first} ({100 * share:.0f}% of a turn): {CAUSES[first]}"
        if others and others[0][1] >= 0.1:
            told += f"; then {others[0][0]} ({100 * others[0][1]:.0f}%)"
        return told


def explain(run: SimRun) -> Explained:
    pairs = [
        (record, timing)
        for record, timing in zip(run.records, run.timings, strict=True)
        if record.phase == "profile" and record.status == "ok"
    ]
    turn = mean_timing([timing for _, timing in pairs])
    lost = lost_share([record for record, _ in pairs])
    used, kept = _kv_shares(run.memory)
    return Explained(
        turns=len(pairs),
        turn=turn,
        causes=_causes(run, turn, [record for record, _ in pairs]) if turn.total_s > 0 else {},
        kv_used_share=used,
        kv_kept_share=kept,
        lost_share=lost,
        idle_share=run.steps.idle_s / run.simulated_s if run.simulated_s > 0 else 0.0,
    )


def mean_timing(timings: Sequence[TurnTiming]) -> TurnTiming:
    """All zero without any."""
    names = ("front_end_s", "queue_s", "load_s", "prefill_s", "decode_s", "other_ranks_s")
    count = max(len(timings), 1)
    return TurnTiming(**{name: sum(getattr(timing, name) for timing in timings) / count for name in names})


def lost_share(records: Iterable[RequestRecord]) -> float:
    lost = prompt = 0
    for record in records:
        prompt += record.prompt_tokens
        lost += max(0, (record.ceiling_tokens or 0) - (record.cached_tokens or 0))
    return lost / prompt if prompt else 0.0


def _causes(run: SimRun, turn: TurnTiming, records: Sequence[RequestRecord]) -> dict[str, float]:
    seconds = dict.fromkeys(CAUSES, 0.0)
    seconds["front end"] = turn.front_end_s
    seconds["link"] = turn.load_s
    seconds["other ranks"] = turn.other_ranks_s
    short = _short_of_kv(run.memory)
    seconds["KV capacity"] = turn.queue_s * short
    seconds["scheduling"] = turn.queue_s * (1 - short)
    steps = _without_lost(run.steps, _again_share(records))
    steps_s = sum(steps.values())
    for cause, part in steps.items():
        seconds[cause] += (turn.prefill_s + turn.decode_s) * part / steps_s if steps_s else 0.0
    found = {cause: part / turn.total_s for cause, part in seconds.items() if part > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _without_lost(steps: StepTotals, again: float) -> dict[str, float]:
    """Seconds of all steps by cause, with those that computed lost tokens again under "KV capacity"."""
    found = {"KV capacity": 0.0}
    for kind, limits in steps.kind_limits.items():
        lost = again * prompt_share(steps, kind)
        found["KV capacity"] += lost * sum(limits.values())
        for cause, part in limits.items():
            found[cause] = found.get(cause, 0.0) + part * (1 - lost)
    return found


def prompt_share(steps: StepTotals, kind: str) -> float:
    """Of the time of that kind's steps, what would not have been there without prompts: a step that also decodes counts
    beyond what a decode step takes."""
    own = steps.group.get(kind, StepKind())
    if kind == "decode" or own.seconds <= 0:
        return 0.0
    decode = steps.group.get("decode", StepKind())
    beside_s = own.count * decode.p50_s if kind == "mixed" else 0.0
    return max(0.0, 1 - beside_s / own.seconds)


def _again_share(records: Sequence[RequestRecord]) -> float:
    """Of the prompt tokens that were computed, those that had been before."""
    computed = sum(record.prompt_tokens - (record.cached_tokens or 0) for record in records)
    lost = sum(max(0, (record.ceiling_tokens or 0) - (record.cached_tokens or 0)) for record in records)
    return min(1.0, lost / computed) if computed else 0.0


def _short_of_kv(memory: Sequence[MemorySample]) -> float:
    """Of the moments at which requests waited, those at which there was no room for one more like those that run."""
    waiting = [sample for sample in memory if sample.waiting]
    short = [s for s in waiting if s.running and s.free_blocks + s.cached_blocks < s.used_blocks / s.running]
    return len(short) / len(waiting) if waiting else 0.0


def _kv_shares(memory: Sequence[MemorySample]) -> tuple[float, float]:
    blocks = sum(_blocks(sample) for sample in memory)
    if not blocks:
        return 0.0, 0.0
    return sum(s.used_blocks for s in memory) / blocks, sum(s.cached_blocks for s in memory) / blocks


def _blocks(sample: MemorySample) -> int:
    return sample.used_blocks + sample.cached_blocks + sample.free_blocks
