"""The tiers of several engines that know nothing of each other: each has its own, built alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from samovar.core.config import EngineConfig
from samovar.policy.retention import RetentionPolicy
from samovar.sim.outcome import LinkTotals
from samovar.sim.seam import BuiltTiers, TierBuilder


def build_tiers(
    wanted: TierBuilder | None, config: EngineConfig, policies: Sequence[RetentionPolicy], ranks: int
) -> list[BuiltTiers]:
    """One for each engine of `ranks` ranks, () without any wanted. `policies` are those of all ranks, engine by
    engine."""
    if wanted is None:
        return []
    return [wanted.build(config, policies[first : first + ranks]) for first in range(0, len(policies), ranks)]


def links_of(engines: Sequence[BuiltTiers]) -> tuple[LinkTotals, ...]:
    """What crossed every link, named after its engine where there are several."""
    if len(engines) == 1:
        return engines[0].links()
    return tuple(
        replace(link, name=f"engine {number}: {link.name}")
        for number, tiers in enumerate(engines)
        for link in tiers.links()
    )
