"""An engine's snapshot, and figures that more than one page makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samovar.core.stats import CacheReport, EngineStats


@dataclass(frozen=True, slots=True)
class Snapshot:
    stats: EngineStats
    report: CacheReport
    at_s: float
    """`time.monotonic` when both were here."""


def hit_rates(stats: EngineStats) -> tuple[float | None, float | None]:
    """The hit rate and its ceiling, from the engine's start; None before there was a prompt."""
    if not stats.prompt_tokens:
        return None, None
    return stats.prompt_tokens_cached / stats.prompt_tokens, stats.ceiling_tokens / stats.prompt_tokens


def hints_by_kind(hints: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """{"kind:status": count} as {kind: {status: count}}."""
    found: dict[str, dict[str, int]] = {}
    for name, count in sorted(hints.items()):
        kind, _, status = name.partition(":")
        found.setdefault(kind, {})[status] = count
    return found
