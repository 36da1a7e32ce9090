"""The tiers' part of /metrics: gauges and counters with the tier as label.

Tiers and reasons are words of the engine. Should it ever make up many, the first `MAX_LABELS` keep series of their own
and the rest share one, so that nothing makes series without end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import re

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from samovar.core.stats import TierReport

MAX_LABELS = 24
OTHER = "other"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,39}")

_GAUGES = (
    ("samovar:tier_capacity_blocks", "num_blocks", "Blocks the tier has room for."),
    ("samovar:tier_used_blocks", "num_used_blocks", "Blocks with content, or being filled."),
    ("samovar:tier_capacity_bytes", "capacity_bytes", "Bytes the tier may take."),
    ("samovar:tier_physical_bytes", "physical_bytes", "Memory or disk space taken now."),
    (
        "samovar:tier_not_yet_durable_blocks",
        "not_yet_durable_blocks",
        "Blocks that are to survive a restart and would not do so now.",
    ),
    ("samovar:tier_suspended", "suspended", "1 while the tier is not asked, since it did not answer in time."),
    ("samovar:tier_load_bytes_per_second", "bytes_per_s", "Measured rate of loads from the tier; 0 before the first."),
)
_COUNTERS = (
    ("samovar:tier_loaded_blocks", "loaded_blocks", "Blocks loaded from the tier."),
    ("samovar:tier_stored_blocks", "stored_blocks", "Blocks stored to the tier."),
    ("samovar:tier_evicted_blocks", "evicted_blocks", "Blocks of the tier that made room."),
    ("samovar:tier_suspensions", "suspensions", "Times that the tier did not answer and was not asked any more."),
)


class Bounded:
    """Which label values have series of their own: the first ones seen, for good."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._known and len(self._known) < MAX_LABELS and _WORD.fullmatch(name):
            self._known.add(name)
        return name if name in self._known else OTHER

    def sums(self, values: Iterable[tuple[str, float]]) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, value in values:
            label = self.label(name)
            found[label] = found.get(label, 0) + value
        return found


class TierMetrics:
    """`names` and `values` are the labels that every metric of the engine has."""

    def __init__(self, names: tuple[str, ...], values: tuple[str, ...]) -> None:
        self._names = names
        self._values = values
        self._tiers = Bounded()
        self._reasons = Bounded()

    def collect(self, tiers: tuple[TierReport, ...]) -> Iterator[Metric]:
        for name, field, text in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=(*self._names, "tier"))
            for tier, value in self._by_tier(tiers, field).items():
                gauge.add_metric((*self._values, tier), value)
            yield gauge
        for name, field, text in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=(*self._names, "tier"))
            for tier, value in self._by_tier(tiers, field).items():
                counter.add_metric((*self._values, tier), value)
            yield counter
        yield self._failed(tiers)

    def _by_tier(self, tiers: tuple[TierReport, ...], field: str) -> dict[str, float]:
        return self._tiers.sums((tier.tier, getattr(tier, field)) for tier in tiers)

    def _failed(self, tiers: tuple[TierReport, ...]) -> Metric:
        family = CounterMetricFamily(
            "samovar:tier_failed_blocks",
            "Blocks the tier could not load, store or verify, by reason.",
            labels=(*self._names, "tier", "reason"),
        )
        sums: dict[tuple[str, str], float] = {}
        for tier in tiers:
            label = self._tiers.label(tier.tier)
            for reason, value in self._reasons.sums(tier.failed.items()).items():
                sums[label, reason] = sums.get((label, reason), 0) + value
        for (label, reason), value in sorted(sums.items()):
            family.add_metric((*self._values, label, reason), value)
        return family
