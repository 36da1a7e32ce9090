"""AgentX's figures from request records. Each one's formula stands in `metrics_formulas`, under the same name.

Percentiles interpolate linearly and weigh requests alike (main agents and sub-agents together). For rates the
percentile is taken of the time and inverted after: P90 interactivity is the rate that 90% of the requests reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from samovar.base.errors import ConfigError
from samovar.workload.metrics_cost import Cost, Price, costs
from samovar.workload.metrics_record import RequestRecord


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of `count` values; None where there are none."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The measured part of a run at one concurrency."""

    concurrency: int
    complete: bool
    stopped: str = ""
    """Why a run that is not complete ended."""
    window_s: float
    issued: int
    ok: int
    failed: int
    cut: int
    errors: dict[str, int]

    ttft_s: Spread
    itl_s: Spread
    full_itl_s: Spread
    latency_s: Spread
    e2e_per_token_s: Spread

    p90_interactivity: float | None
    """Tokens per second, to the end of the stream."""
    p90_interactivity_last_token: float | None
    p90_e2e_interactivity: float | None
    mean_e2e_interactivity: float | None
    p90_interactivity_all: float | None
    """With failed and cut requests counted as infinitely slow; 0 when they are more than a tenth."""

    gpus: int
    tokens_per_gpu_s: float
    computed_per_gpu_s: float
    cached_per_gpu_s: float
    generated_per_gpu_s: float
    prompt_tokens: int
    cached_tokens: int | None
    """None when the server does not say."""
    output_tokens: int

    hit_rate: float | None
    hit_ceiling: float | None
    prompt_drift: float
    """Prompt tokens the server counted beyond those planned, as a share of the planned."""
    short_answers: int
    """Requests that ended well with fewer tokens than were asked for."""

    slo: dict[str, float]
    slo_met: int
    goodput_per_s: float
    costs: tuple[Cost, ...] = ()

    skipped_s: float = 0.0
    """Recorded idle time that the caps cut out."""
    lag_s: Spread
    """How late requests left after they were due: the load generator's own fault."""
    sessions_begun: int = 0
    sessions_finished: int = 0
    warmup_requests: int = 0
    warmup_failed: int = 0
    """The warm-up's are in no other figure."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a breakdown."""

    name: str
    requests: int
    failed: int
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    full_itl_p90_s: float | None
    hit_rate: float | None
    hit_ceiling: float | None
    computed_tokens: int | None
    output_tokens: int


def percentile(values: Sequence[float], q: float) -> float | None:
    """Linear interpolation, q from 0 to 100; infinite values sort last."""
    if not values:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    at = (len(ordered) - 1) * q / 100
    low = int(at)
    if at == low:
        return float(ordered[low])
    return float(ordered[low] + (ordered[low + 1] - ordered[low]) * (at - low)) if np.isfinite(ordered[low]) else np.inf


def spread(values: Iterable[float | None]) -> Spread:
    known = [value for value in values if value is not None]
    return Spread(
        count=len(known),
        mean=float(np.mean(known)) if known else None,
        p50=percentile(known, 50),
        p90=percentile(known, 90),
        p99=percentile(known, 99),
    )


def inverse(seconds: float | None) -> float | None:
    """A time per token as a rate; 0 for one that never came."""
    return 1 / seconds if seconds else None


def total(counts: Iterable[int | None]) -> int | None:
    """None when one of them is, or there are none."""
    known = list(counts)
    return None if not known or None in known else sum(count or 0 for count in known)


def ratio(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


def summarise(
    records: Iterable[RequestRecord],
    *,
    concurrency: int,
    gpus: int = 1,
    price: Price | None = None,
    slo: dict[str, float] | None = None,
    complete: bool = True,
    stopped: str = "",
    skipped_s: float = 0.0,
    sessions_begun: int = 0,
    sessions_finished: int = 0,
) -> Point:
    """`records` of one concurrency; those of the warm-up are only counted. `slo` as `parse_slo` gives it."""
    every = list(records)
    measured = [r for r in every if r.phase == "profile"]
    ok = [r for r in measured if r.status == "ok"]
    window = max(r.end_s for r in ok) - min(r.start_s for r in ok) if ok else 0.0
    limits = slo or {}
    met = sum(meets(r, limits) for r in ok)
    return Point(
        concurrency=concurrency,
        complete=complete,
        stopped=stopped,
        window_s=window,
        issued=len(measured),
        ok=len(ok),
        failed=sum(r.status == "failed" for r in measured),
        cut=sum(r.status == "cut" for r in measured),
        errors=_errors(measured),
        gpus=gpus,
        slo=limits,
        slo_met=met,
        goodput_per_s=_rate(met, window),
        costs=_costs(ok, price, gpus, window) if price else (),
        skipped_s=skipped_s,
        lag_s=spread(r.start_s - r.due_s for r in measured),
        sessions_begun=sessions_begun,
        sessions_finished=sessions_finished,
        warmup_requests=len(every) - len(measured),
        warmup_failed=sum(r.status == "failed" for r in every if r.phase == "warmup"),
        **_speeds(ok, lost=len(measured) - len(ok)),
        **_tokens(ok, gpus * window),
    )


def _speeds(ok: Sequence[RequestRecord], lost: int) -> dict[str, Any]:
    """The fields of a Point that come from times; `lost` requests have none."""
    full = [r.full_itl_s for r in ok]
    to_end, last_token = spread(full), spread(r.itl_s for r in ok)
    normal = spread(r.e2e_per_token_s for r in ok)
    waited_s = sum(r.latency_s or 0.0 for r in ok)
    everyone = [value for value in full if value is not None] + [np.inf] * lost
    return {
        "ttft_s": spread(r.ttft_s for r in ok),
        "itl_s": last_token,
        "full_itl_s": to_end,
        "latency_s": spread(r.latency_s for r in ok),
        "e2e_per_token_s": normal,
        "p90_interactivity": inverse(to_end.p90),
        "p90_interactivity_last_token": inverse(last_token.p90),
        "p90_e2e_interactivity": inverse(normal.p90),
        "mean_e2e_interactivity": sum(r.output_tokens for r in ok) / waited_s if waited_s else None,
        "p90_interactivity_all": inverse(percentile(everyone, 90)),
    }


def _tokens(ok: Sequence[RequestRecord], gpu_s: float) -> dict[str, Any]:
    """The fields of a Point that come from token counts."""
    prompt, output = sum(r.prompt_tokens for r in ok), sum(r.output_tokens for r in ok)
    planned = sum(r.planned_prompt_tokens for r in ok)
    cached = total(r.cached_tokens for r in ok)
    return {
        "tokens_per_gpu_s": _rate(prompt + output, gpu_s),
        "computed_per_gpu_s": _rate(prompt - (cached or 0), gpu_s),
        "cached_per_gpu_s": _rate(cached or 0, gpu_s),
        "generated_per_gpu_s": _rate(output, gpu_s),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "output_tokens": output,
        "hit_rate": ratio(cached, prompt),
        "hit_ceiling": ratio(total(r.ceiling_tokens for r in ok), planned),
        "prompt_drift": prompt / planned - 1 if planned else 0.0,
        "short_answers": sum(r.output_tokens < r.planned_output_tokens for r in ok),
    }


def _costs(ok: Sequence[RequestRecord], price: Price, gpus: int, window_s: float) -> tuple[Cost, ...]:
    prompt, output = sum(r.prompt_tokens for r in ok), sum(r.output_tokens for r in ok)
    return costs(
        price,
        gpus=gpus,
        window_s=window_s,
        tokens=prompt + output,
        uncached_tokens=prompt - (total(r.cached_tokens for r in ok) or 0) + output,
        turns=len(ok),
        sessions=sum(1 / r.tree_turns for r in ok),
    )


SLO_NAMES = ("interactivity", "e2e_interactivity", "ttft_s", "itl_s", "latency_s")


def parse_slo(terms: Iterable[str]) -> dict[str, float]:
    """`p90_interactivity=50`, `ttft_s=2`: the P90_ in front is optional, since 90% is what the report asks for anyway.
    Raises ConfigError."""
    limits: dict[str, float] = {}
    for term in terms:
        name, _, text = term.partition("=")
        key = name.strip().lower().removeprefix("p90_")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if key not in SLO_NAMES or not 0 < value < np.inf:
            raise ConfigError(
                f"--slo {term}: must be NAME=NUMBER with a number above 0 and NAME one of {', '.join(SLO_NAMES)}",
                param="slo",
            )
        limits[key] = value
    return limits


def meets(record: RequestRecord, limits: dict[str, float]) -> bool:
    """Whether one request keeps every limit. A figure that an answer is too short to have breaks none."""
    rates = {
        "interactivity": inverse(record.full_itl_s),
        "e2e_interactivity": inverse(record.e2e_per_token_s),
    }
    times = {"ttft_s": record.ttft_s, "itl_s": record.itl_s, "latency_s": record.latency_s}
    for name, limit in limits.items():
        rate, time = rates.get(name), times.get(name)
        if (rate is not None and rate < limit) or (time is not None and time > limit):
            return False
    return True


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _errors(records: Iterable[RequestRecord]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in records:
        if record.status == "failed":
            counts[record.error] = counts.get(record.error, 0) + 1
    return counts
