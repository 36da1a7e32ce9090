"""/metrics: what this server measures itself, and the engine's counters under vLLM's names.

Labels are the configured model name and the engine's index: both fixed at start, so a client cannot make series.
Names with `vllm:` mean what they mean there; `samovar:` ones have no counterpart.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from samovar.core.ports import EngineInfo
from samovar.serve.cache_figures import Snapshot
from samovar.serve.engine_metrics import LABELS, EngineMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FINISHED_REASONS = ("stop", "length", "abort", "error")

_FIRST_TOKEN_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
)
_TOKEN_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
)
_REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)


class Metrics:
    """Owns its registry: two servers in one process share nothing."""

    def __init__(self, model_name: str, info: EngineInfo) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._labels = (model_name, "0")
        self._engine = EngineMetrics(self._labels, info)
        self._registry.register(self._engine)
        ProcessCollector(registry=self._registry)
        tokens = _one_two_five(info.max_model_len)
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "From arrival to first token.", _FIRST_TOKEN_S
        )
        self.inter_token_latency = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of a request.", _TOKEN_S
        )
        self.time_per_output_token = self._histogram(
            "request_time_per_output_token_seconds", "Per request: mean time between its tokens.", _TOKEN_S
        )
        self.e2e_latency = self._histogram("e2e_request_latency_seconds", "From arrival to last token.", _REQUEST_S)
        self.prompt_tokens = self._histogram("request_prompt_tokens", "Prompt tokens per request.", tokens)
        self.generation_tokens = self._histogram("request_generation_tokens", "Output tokens per request.", tokens)
        self._success = Counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        for reason in FINISHED_REASONS:
            self._success.labels(*self._labels, reason)
        self._errors = Counter(
            "samovar:error_responses", "Errors sent to clients, by code.", (*LABELS, "code"), registry=self._registry
        )
        disconnects = Counter(
            "samovar:disconnects",
            "Clients that went away before their answer was complete.",
            LABELS,
            registry=self._registry,
        )
        self.disconnects = disconnects.labels(*self._labels)

    def finished(self, reason: str) -> None:
        """`reason` is one of FINISHED_REASONS."""
        self._success.labels(*self._labels, reason).inc()

    def error(self, code: str) -> None:
        """`code` of an error class: a fixed set."""
        self._errors.labels(*self._labels, code).inc()

    def exposition(self, snapshot: Snapshot | None) -> bytes:
        """The page. Without a fresh `snapshot` (the engine is gone) the engine's last known counters stay."""
        self._engine.update(snapshot)
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(f"vllm:{name}", text, LABELS, registry=self._registry, buckets=buckets)
        labelled: Histogram = family.labels(*self._labels)
        return labelled


class ChoiceTimer:
    """Times one choice as its outputs arrive. Times are `time.monotonic` seconds."""

    def __init__(self, metrics: Metrics, arrived_s: float, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._arrived_s = arrived_s
        self._prompt_tokens = prompt_tokens
        self._first_s: float | None = None
        self._last_s = arrived_s
        self._tokens = 0
        self._ended = False

    def tokens(self, count: int, at_s: float) -> None:
        """`count` tokens arrived together; the time since the last ones is theirs in equal parts."""
        if count == 0:
            return
        if self._first_s is None:
            self._first_s = at_s
            self._metrics.time_to_first_token.observe(at_s - self._arrived_s)
        else:
            each = (at_s - self._last_s) / count
            for _ in range(count):
                self._metrics.inter_token_latency.observe(each)
        self._last_s = at_s
        self._tokens += count

    def end(self, reason: str, num_tokens: int, at_s: float) -> None:
        """Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self._metrics.finished(reason)
        self._metrics.prompt_tokens.observe(self._prompt_tokens)
        self._metrics.generation_tokens.observe(num_tokens)
        if reason in ("stop", "length"):
            self._metrics.e2e_latency.observe(at_s - self._arrived_s)
            if self._first_s is not None and self._tokens > 1:
                self._metrics.time_per_output_token.observe((self._last_s - self._first_s) / (self._tokens - 1))


def _one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `limit`."""
    values: list[float] = []
    scale = 1
    while scale <= limit:
        values.extend(scale * step for step in (1, 2, 5) if scale * step <= limit)
        scale *= 10
    return tuple(values)
