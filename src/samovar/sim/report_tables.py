"""What a simulation found, in tables of text: the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samovar.sim.explain import LEAST_TURNS, evidence, none_ended, slow_turns
from samovar.sim.outcome import SimRun, StepKind
from samovar.sim.report_limits import Explained
from samovar.workload.metrics import Point
from samovar.workload.quantities import bytes_text

WORDS = ("bound by", "why", "a turn, seconds")
"""Heads of columns that hold sentences, which may be folded."""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    told: str = ""
    """A line below the title."""
    left: int = 1
    """First columns that are words; the others are numbers, but for the last one where its head is one of WORDS."""

    @property
    def ends_in_words(self) -> bool:
        return self.head[-1] in WORDS


@dataclass(frozen=True, slots=True)
class Simulated:
    """One concurrency."""

    point: Point
    run: SimRun
    explained: Explained


def points_table(parts: Sequence[Simulated]) -> Table:
    head = ("lanes", "sent", "cut off", "P90 tok/s", "E2E tok/s", "tok/s/GPU", "TTFT P90", "hit", "ceiling", "KV used",
            "bound by")  # fmt: skip
    rows = [
        (
            str(part.point.concurrency),
            str(part.point.issued),
            str(part.point.cut),
            number(part.point.p90_interactivity),
            number(part.point.p90_e2e_interactivity),
            number(part.point.tokens_per_gpu_s if part.explained.turns else None, 0),
            seconds(part.point.ttft_s.p90),
            share(part.point.hit_rate),
            share(part.point.hit_ceiling),
            share(part.explained.kv_used_share),
            part.explained.verdict if part.explained.turns else none_ended(part.run),
        )
        for part in parts
    ]
    return Table("Simulated", head, tuple(rows))


def turn_table(parts: Sequence[Simulated]) -> Table:
    head = ("lanes", "turns", "front end", "queue", "load", "prefill", "decode", "other ranks", "whole turn")
    rows = [
        (
            str(part.point.concurrency),
            str(part.explained.turns),
            *(
                seconds(value if part.explained.turns else None)
                for value in (
                    part.explained.turn.front_end_s,
                    part.explained.turn.queue_s,
                    part.explained.turn.load_s,
                    part.explained.turn.prefill_s,
                    part.explained.turn.decode_s,
                    part.explained.turn.other_ranks_s,
                    part.explained.turn.total_s,
                )
            ),
        )
        for part in parts
    ]
    return Table("Time of a turn, mean", head, tuple(rows))


def steps_table(parts: Sequence[Simulated]) -> Table:
    head = ("lanes", "steps with", "count", "P50", "P90", "share of step time")
    rows: list[tuple[str, ...]] = []
    for part in parts:
        kinds = part.run.steps.group
        whole = sum(kind.seconds for kind in kinds.values())
        for name, kind in kinds.items():
            if kind.count:
                rows.append((str(part.point.concurrency), _STEPS.get(name, name), *_kind(kind, whole)))
    told = "of all ranks together: a step lasts as long as the slowest one's"
    return Table("Steps", head, tuple(rows), told, left=2)


def links_table(parts: Sequence[Simulated]) -> Table:
    head = ("lanes", "link", "moved", "busy", "of its bandwidth while busy")
    rows = [
        (
            str(part.point.concurrency),
            link.name,
            bytes_text(link.bytes),
            share(link.busy_s / link.elapsed_s if link.elapsed_s else 0.0),
            share(link.bytes / (link.busy_s * link.bandwidth) if link.busy_s and link.bandwidth else 0.0),
        )
        for part in parts
        for link in part.run.links
        if link.bytes
    ]
    return Table("Links", head, tuple(rows), left=2)


def evidence_table(parts: Sequence[Simulated]) -> Table:
    rows: list[tuple[str, ...]] = []
    for part in parts:
        lanes = str(part.point.concurrency)
        rows += [(lanes, found.cause, share(found.share), found.told) for found in evidence(part.run, part.explained)]
        if part.explained.turns >= LEAST_TURNS:
            rows.append((lanes, "the slowest tenth", "", slow_turns(part.run).told))
    return Table(
        "What bounds a turn, and how one can tell", ("lanes", "cause", "of a turn", "why"), tuple(rows), left=2
    )


_STEPS = {"decode": "decodes only", "mixed": "decodes and prompts", "prefill": "prompts only"}


def _kind(kind: StepKind, whole_s: float) -> tuple[str, ...]:
    return f"{kind.count:,}", milliseconds(kind.p50_s), milliseconds(kind.p90_s), share(kind.seconds / whole_s)


def lanes_text(count: int) -> str:
    return f"{count} lane" if count == 1 else f"{count} lanes"


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f} s"


def milliseconds(value: float) -> str:
    return f"{1e3 * value:,.1f} ms"
