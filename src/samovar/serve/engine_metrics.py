"""The engine's snapshot as metric families, made anew for every scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import re

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from samovar.core.ports import EngineInfo
from samovar.core.stats import EngineStats

LABELS = ("model_name", "engine")
_PRIVATE = ("cache_dir", "record_path", "model")
"""Settings that say how the machine is laid out: anyone may read `/metrics`."""

_GAUGES = (
    ("vllm:num_requests_running", "num_running", "Requests on the device."),
    ("vllm:num_requests_waiting", "num_waiting", "Requests waiting to get on the device."),
    ("samovar:queued_tokens", "num_queued_tokens", "Uncached prompt tokens still to compute for waiting requests."),
    ("samovar:kv_blocks", "num_blocks", "KV blocks of the device."),
    ("samovar:kv_blocks_free", "num_free_blocks", "KV blocks neither used nor cached."),
    ("samovar:kv_blocks_cached", "num_cached_blocks", "KV blocks cached and unused."),
)
_COUNTERS = (
    ("vllm:prefix_cache_queries", "prefix_queries_tokens", "Prompt tokens looked up in the prefix cache."),
    ("vllm:prefix_cache_hits", "prefix_hits_tokens", "Prompt tokens found in the prefix cache."),
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
    ("samovar:evicted_blocks", "evicted_blocks", "Cached KV blocks that made room."),
    ("samovar:deduplicated_blocks", "deduplicated_blocks", "KV blocks freed because an equal one was there."),
    ("samovar:loaded_blocks", "loaded_blocks", "KV blocks loaded from a tier."),
    ("samovar:stored_blocks", "stored_blocks", "KV blocks stored to a tier."),
    ("samovar:failed_load_blocks", "failed_load_blocks", "KV blocks that could not be loaded."),
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
)


class EngineMetrics(Collector):
    """Keeps the last snapshot, so that counters never fall back to nothing when the engine dies."""

    def __init__(self, labels: tuple[str, str], info: EngineInfo) -> None:
        self._labels = labels
        self._info = info
        self._stats = EngineStats()
        self._up = False

    def update(self, stats: EngineStats | None) -> None:
        self._up = stats is not None
        self._stats = stats or self._stats

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
            family = CounterMetricFamily(name, text, labels=LABELS)
            family.add_metric(self._labels, getattr(stats, field))
            yield family
        sources = {"local_compute": stats.prompt_tokens_computed, "local_cache_hit": stats.prompt_tokens_cached}
        yield self._counter(
            "vllm:prompt_tokens_by_source", "Prompt tokens, by where their KV came from.", "source", sources
        )
        for name, label, field, text in _BY_LABEL:
            yield self._counter(name, text, label, getattr(stats, field))
        yield self._config()

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
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
