"""The engine's snapshot as metric families, made anew for every scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import re

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from samovar.core.ports import EngineInfo
from samovar.core.stats import CacheReport, EngineStats
from samovar.serve.cache_figures import Snapshot, hit_rates
from samovar.serve.tier_metrics import OTHER, Bounded, TierMetrics

LABELS = ("model_name", "engine")
DEVICE = "device"
VLLM_SOURCES = (DEVICE, "host", "disk", "p2p")
"""Of `vllm:prompt_tokens_cached_by_source`; a tier of another name is `external_unspecified` there."""
MISS_REASONS = ("none", "cold", "new", "cut", "evicted", "expired", "failed_load", "disabled")
"""Of `core.events.Miss`. Their series exist from the start, so that a rate sees the first one."""
_PRIVATE = ("cache_dir", "record_path", "model")
"""Settings that say how the machine is laid out: anyone may read `/metrics`."""

_GAUGES = (
    ("vllm:num_requests_running", "num_running", "Requests on the device."),
    ("vllm:num_requests_waiting", "num_waiting", "Requests waiting to get on the device."),
    ("samovar:queued_tokens", "num_queued_tokens", "Uncached prompt tokens still to compute for waiting requests."),
    ("samovar:kv_blocks", "num_blocks", "KV blocks of the device."),
    ("samovar:kv_blocks_free", "num_free_blocks", "KV blocks neither used nor cached."),
    ("samovar:kv_blocks_cached", "num_cached_blocks", "KV blocks cached and unused."),
    (
        "samovar:saved_seconds",
        "saved_s",
        "What computing the cached tokens would have taken at the measured prefill rate, less what loading them took.",
    ),
    (
        "samovar:prefill_tokens_per_second",
        "prefill_tokens_per_s",
        "Measured prefill rate; 0 before the first prefill.",
    ),
)
_COUNTERS = (
    ("vllm:prefix_cache_queries", "prefix_queries_tokens", "Prompt tokens looked up in the prefix cache."),
    ("vllm:prompt_tokens", "prompt_tokens", "Prompt tokens of requests that reached their first token."),
    ("vllm:prompt_tokens_cached", "prompt_tokens_cached", "Prompt tokens that were cached."),
    ("vllm:generation_tokens", "generation_tokens", "Tokens generated."),
    ("vllm:num_preemptions", "preemptions", "Requests preempted."),
    ("samovar:requests_admitted", "requests_admitted", "Requests the engine took in."),
    ("samovar:steps", "steps", "Steps executed."),
    ("samovar:step_tokens", "step_tokens", "Tokens computed in steps, for whatever they were."),
    ("samovar:prefill_steps", "prefill_steps", "Steps with prefill in them."),
    ("samovar:failed_steps", "failed_steps", "Steps that failed."),
    ("samovar:recomputed_tokens", "recomputed_tokens", "Tokens computed again after a preemption or a failed step."),
    ("samovar:shared_tokens", "shared_tokens", "Part of the hits: adopted from a request computing them at the time."),
    (
        "samovar:prefix_cache_ceiling_tokens",
        "ceiling_tokens",
        "Prompt tokens that an infinite cache would have found.",
    ),
    ("samovar:regretted_tokens", "regretted_tokens", "Prompt tokens computed because an eviction had taken them."),
    ("samovar:evicted_blocks", "evicted_blocks", "Cached KV blocks that made room."),
    ("samovar:deduplicated_blocks", "deduplicated_blocks", "KV blocks freed because an equal one was there."),
    ("samovar:loaded_blocks", "loaded_blocks", "KV blocks loaded from a tier."),
    ("samovar:stored_blocks", "stored_blocks", "KV blocks stored to a tier."),
    ("samovar:prefetched_blocks", "prefetched_blocks", "Loaded KV blocks that no request had asked for yet."),
    ("samovar:failed_load_blocks", "failed_load_blocks", "KV blocks that could not be loaded."),
    ("samovar:wasted_load_blocks", "wasted_load_blocks", "Loaded, and evicted or given up before any use."),
    (
        "samovar:declined_load_blocks",
        "declined_load_blocks",
        "Found in a tier and computed all the same, which was estimated to be faster.",
    ),
)
_BY_LABEL = (
    ("vllm:admission_rejections", "reason", "requests_rejected", "Requests the engine refused, by error code."),
    ("samovar:engine_requests_finished", "reason", "requests_finished", "Requests the engine ended, by finish reason."),
    ("samovar:cached_tokens", "tier", "cached_tokens_by_tier", "Prompt tokens that were cached, by where."),
    ("samovar:prefix_cache_misses", "reason", "misses", "Requests by why the cache covered no more of their prompt."),
    (
        "samovar:prefix_cache_missed_tokens",
        "reason",
        "missed_tokens",
        "Prompt tokens computed, by why they were missed.",
    ),
    ("samovar:failed_load_blocks_by_reason", "reason", "failed_load_reasons", "KV blocks by why their load failed."),
)


class EngineMetrics(Collector):
    """Keeps the last snapshot, so that counters never fall back to nothing when the engine dies."""

    def __init__(self, labels: tuple[str, str], info: EngineInfo) -> None:
        self._labels = labels
        self._info = info
        self._stats = EngineStats()
        self._report = CacheReport("", info.block_tokens, (), (), 0)
        self._up = False
        self._tiers = TierMetrics(LABELS, labels)
        self._bounded = {name: Bounded() for name, *_ in _BY_LABEL}
        self._hints = Bounded()

    def update(self, snapshot: Snapshot | None) -> None:
        self._up = snapshot is not None
        if snapshot is not None:
            self._stats, self._report = snapshot.stats, snapshot.report

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        yield self._gauge("samovar:engine_up", "1 while the engine answers.", float(self._up))
        for name, field, text in _GAUGES:
            yield self._gauge(name, text, getattr(stats, field))
        used = stats.num_blocks - stats.num_free_blocks - stats.num_cached_blocks
        yield self._gauge("samovar:kv_blocks_used", "KV blocks that live requests hold.", used)
        yield self._gauge(
            "vllm:kv_cache_usage_perc", "Share of KV blocks that live requests hold, 0 to 1.", stats.kv_usage
        )
        yield self._gauge("samovar:sessions", "Conversations the engine remembers.", self._report.num_sessions)
        yield from self._rates(stats)
        waiting = {"capacity": stats.num_waiting_for_capacity, "deferred": stats.num_waiting_deferred}
        by_reason = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Waiting requests, by what they wait for.",
            labels=(*LABELS, "reason"),
        )
        for reason, value in waiting.items():
            by_reason.add_metric((*self._labels, reason), value)
        yield by_reason
        for name, field, text in _COUNTERS:
            yield self._counter(name, text, getattr(stats, field))
        yield from self._sources(stats)
        for name, label, field, text in _BY_LABEL:
            values = self._bounded[name].sums(getattr(stats, field).items())
            if field in ("misses", "missed_tokens"):
                values = dict.fromkeys(MISS_REASONS, 0.0) | values
            yield self._labelled(name, text, label, values)
        yield self._hint_counts(stats)
        yield from self._tiers.collect(self._report.tiers)
        yield self._config()

    def _rates(self, stats: EngineStats) -> Iterator[Metric]:
        """Of everything since the start; over a window, divide the counters' rates. No sample before there is one."""
        rate, ceiling = hit_rates(stats)
        for name, text, value in (
            ("samovar:prefix_cache_hit_ratio", "Cached / prompt tokens from the start, 0 to 1.", rate),
            ("samovar:prefix_cache_ceiling_ratio", "The same of an infinite cache, 0 to 1.", ceiling),
        ):
            if value is not None:
                yield self._gauge(name, text, value)

    def _sources(self, stats: EngineStats) -> Iterator[Metric]:
        """vLLM's split: the device's own cache here, everything that a connector brought there."""
        by_tier = stats.cached_tokens_by_tier
        external = sum(value for tier, value in by_tier.items() if tier != DEVICE)
        local = max(0, stats.prefix_hits_tokens - external)
        yield self._counter("vllm:prefix_cache_hits", "Prompt tokens found on the device.", local)
        yield self._counter(
            "vllm:external_prefix_cache_queries",
            "Prompt tokens looked up in the tiers below the device.",
            max(0, stats.prefix_queries_tokens - local) if len(self._report.tiers) > 1 else 0,
        )
        yield self._counter("vllm:external_prefix_cache_hits", "Prompt tokens found there.", external)
        sources = {
            "local_compute": stats.prompt_tokens_computed,
            "local_cache_hit": max(0, stats.prompt_tokens_cached - external),
            "external_kv_transfer": external,
        }
        yield self._labelled(
            "vllm:prompt_tokens_by_source", "Prompt tokens, by where their KV came from.", "source", sources
        )
        where = dict.fromkeys((*VLLM_SOURCES, "external_unspecified"), 0)
        for tier, value in by_tier.items():
            where[tier if tier in VLLM_SOURCES else "external_unspecified"] += value
        yield self._labelled(
            "vllm:prompt_tokens_cached_by_source", "Cached prompt tokens, by where they were found.", "source", where
        )
        block_bytes = next((tier.block_bytes for tier in self._report.tiers if tier.tier == DEVICE), 0)
        yield self._counter(
            "vllm:kv_offload_load_bytes", "Bytes loaded from tiers into the device.", stats.loaded_blocks * block_bytes
        )
        yield self._counter(
            "vllm:kv_offload_store_bytes", "Bytes stored from the device to tiers.", stats.stored_blocks * block_bytes
        )

    def _hint_counts(self, stats: EngineStats) -> Metric:
        family = CounterMetricFamily(
            "samovar:hints",
            "What clients said of a session's future, by action and by what became of it.",
            labels=(*LABELS, "action", "status"),
        )
        for label, value in sorted(self._hints.sums(stats.hints.items()).items()):
            action, _, status = label.partition(":")
            family.add_metric((*self._labels, action, status or OTHER), value)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _labelled(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = CounterMetricFamily(name, text, labels=(*LABELS, label))
        for key, value in sorted(values.items()):
            family.add_metric((*self._labels, key), value)
        return family

    def _config(self) -> Metric:
        """Every resolved option as a label of one constant, as vLLM does; no paths."""
        settings = {
            label: value
            for label, value in sorted((_label(flag), value) for flag, value in self._info.settings.items())
            if label not in _PRIVATE and not value.startswith(("/", "~", "."))
        }
        settings |= {"block_size": str(self._info.block_tokens), "num_gpu_blocks": str(self._info.num_blocks)}
        for name, value in zip(LABELS, self._labels, strict=True):
            settings.pop(name, None)
            settings[name] = value
        family = GaugeMetricFamily("vllm:cache_config_info", "The engine's configuration.", labels=tuple(settings))
        family.add_metric(tuple(settings.values()), 1)
        return family


def _label(flag: str) -> str:
    """`--max-model-len` -> `max_model_len`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", flag.lstrip("-"))
    return f"_{name}" if not name or name[0].isdigit() else name
