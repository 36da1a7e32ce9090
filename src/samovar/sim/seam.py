"""Where the tiers below the device are plugged into a simulated rank.

The connector is the engine's own; only bytes in motion are replaced: a mover that knows when each transfer ends instead
of moving anything. Times are the simulation's seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from samovar.core.config import EngineConfig
from samovar.core.plan import StepPlan, TransferDone
from samovar.core.ports import Connector
from samovar.policy.retention import RetentionPolicy
from samovar.sim.outcome import LinkTotals


class VirtualMover(Protocol):
    """The worker's half of one rank's tiers. `now` never decreases. `ended` reports every transfer of a plan given to
    `start`, exactly once."""

    def start(self, plan: StepPlan, now: float) -> None:
        """Begins the plan's loads, stores and moves; called when the plan is submitted."""
        ...

    def next_end(self) -> float | None:
        """When the next transfer ends if nothing else starts; None while nothing moves. Never before the last `now`."""
        ...

    def ended(self, now: float) -> list[TransferDone]:
        """Transfers that ended up to `now` and were not reported yet."""
        ...


@dataclass(frozen=True, slots=True)
class RankTiers:
    connector: Connector
    mover: VirtualMover


class BuiltTiers(Protocol):
    """The tiers of all ranks of one run."""

    @property
    def ranks(self) -> Sequence[RankTiers]: ...

    def links(self) -> tuple[LinkTotals, ...]:
        """What crossed every link so far."""
        ...

    def check(self) -> None:
        """Recompute the movers' and the links' invariants; raises AssertionError. Connectors are the engines' to
        check."""
        ...


class TierBuilder(Protocol):
    """Settings of the tiers; `sim.tiers` has ours."""

    def build(self, engine: EngineConfig, policies: Sequence[RetentionPolicy]) -> BuiltTiers:
        """New tiers, empty. `policies[i]` is the retention policy of rank i's engine, which orders its tiers too."""
        ...
