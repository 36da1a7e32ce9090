"""What steps there were, how long they took and why. Counts from `begin`, which is called when the warm-up is over."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal

from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import StepCost
from samovar.sim.outcome import StepKind, StepTotals

Kind = Literal["decode", "mixed", "prefill"]


class StepTally:
    """Keeps the seconds of every step: 8 bytes for each of the group's and of every rank's, and 16 for its pieces."""

    __slots__ = (
        "_group",
        "_idle_s",
        "_idle_since_s",
        "_kind_limits",
        "_limits",
        "_piece_counts",
        "_piece_s",
        "_ranks",
        "_working",
    )

    def __init__(self) -> None:
        self._clear()
        self._idle_since_s: float | None = 0.0
        self._working: set[object] = set()
        """Groups of which a step runs."""

    def _clear(self) -> None:
        self._group: dict[Kind, array[float]] = {}
        self._ranks: dict[Kind, array[float]] = {}
        self._limits: dict[str, float] = {}
        self._kind_limits: dict[Kind, dict[str, float]] = {}
        self._piece_s = array("d")
        self._piece_counts = array("q")
        self._idle_s = 0.0

    def begin(self, now: float) -> None:
        """Everything so far was warm-up."""
        self._clear()
        if self._idle_since_s is not None:
            self._idle_since_s = now

    def step(self, shapes: Sequence[StepShape], cost: StepCost) -> None:
        decodes = prefills = False
        pieces = 0
        for shape in shapes:
            pieces += shape.decode_sequences
            if shape.chunks:
                prefills = True
                kind: Kind = "mixed" if shape.decode_sequences else "prefill"
                decodes = decodes or kind == "mixed"
            elif shape.decode_sequences:
                decodes, kind = True, "decode"
            else:
                continue
            self._add(self._ranks, kind, cost.total_s)
        group_kind: Kind = "decode" if not prefills else "mixed" if decodes else "prefill"
        self._add(self._group, group_kind, cost.total_s)
        if pieces:
            self._piece_s.append(cost.total_s)
            self._piece_counts.append(pieces)
        limits, own = self._limits, self._kind_limits.setdefault(group_kind, {})
        for name, seconds in cost.limits().items():
            limits[name] = limits.get(name, 0.0) + seconds
            own[name] = own.get(name, 0.0) + seconds

    def _add(self, kinds: dict[Kind, array[float]], kind: Kind, seconds: float) -> None:
        found = kinds.get(kind)
        if found is None:
            found = kinds[kind] = array("d")
        found.append(seconds)

    def idle(self, group: object, now: float) -> None:
        """No step of the group runs from now on."""
        self._working.discard(group)
        if self._idle_since_s is None and not self._working:
            self._idle_since_s = now

    def busy(self, group: object, now: float) -> None:
        self._working.add(group)
        if self._idle_since_s is not None:
            self._idle_s += now - self._idle_since_s
            self._idle_since_s = None

    def totals(self, now: float) -> StepTotals:
        idle_s = self._idle_s + (now - self._idle_since_s if self._idle_since_s is not None else 0.0)
        return StepTotals(
            group={kind: _summed(times) for kind, times in sorted(self._group.items())},
            ranks={kind: _summed(times) for kind, times in sorted(self._ranks.items())},
            pieces=_weighted(self._piece_s, self._piece_counts),
            limits=dict(self._limits),
            kind_limits={kind: dict(limits) for kind, limits in sorted(self._kind_limits.items())},
            idle_s=idle_s,
        )


def _summed(times: array[float]) -> StepKind:
    ordered = sorted(times)
    count = len(ordered)
    return StepKind(count, sum(ordered), ordered[(count - 1) // 2], ordered[min(count - 1, count * 9 // 10)])


def _weighted(times: array[float], counts: array[int]) -> StepKind:
    """Each time counts as often as `counts` says."""
    ordered = sorted(zip(times, counts, strict=True))
    total = sum(counts)

    def at(place: int) -> float:
        for seconds, count in ordered:
            if place < count:
                return seconds
            place -= count
        return 0.0

    seconds = sum(seconds * count for seconds, count in ordered)
    return StepKind(total, seconds, at((total - 1) // 2), at(min(total - 1, total * 9 // 10)))
