"""The official harness's per-request records (`agentx profile`, profile_export.jsonl) as ours, for our figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from samovar.base.errors import ConfigError
from samovar.workload.metrics import summarise
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.report_data import ReportRun
from samovar.workload.session import Role

EXPORT, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"

_ROLES: dict[str, Role] = {"weka_main": "main", "weka_subagent": "subagent", "weka_flat": "main"}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


class _Metric(msgspec.Struct):
    value: Any
    unit: str = ""

    def seconds(self) -> float | None:
        return float(self.value) * _SECONDS[self.unit] if self.unit in _SECONDS else None


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int
    conversation_id: str = ""
    turn_index: int = 0
    source_trace_id: str | None = None
    source_kind: str | None = None
    benchmark_phase: str = "profiling"
    root_correlation_id: str | None = None
    x_correlation_id: str | None = None
    was_cancelled: bool = False
    agent_depth: int = 0


class _Total(msgspec.Struct):
    count: float
    sum: float


class _Summary(msgspec.Struct):
    theoretical_prefix_cache_hit: _Total | None = None


class _Row(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Metric] = {}
    error: Any = None


def read_export(folder: Path) -> ReportRun:
    """Raises ConfigError, naming file and line."""
    path = folder / EXPORT
    rows: list[_Row] = []
    try:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                rows.append(msgspec.json.decode(line, type=_Row))
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path}, line {number}: not a record of the harness: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    records = _records(rows)
    concurrency = max(len({r.lane for r in records}), 1)
    records = [msgspec.structs.replace(r, concurrency=concurrency) for r in records]
    point = summarise(records, concurrency=concurrency)
    point = msgspec.structs.replace(point, hit_ceiling=_theoretical(folder / SUMMARY))
    facts = {"source": f"agentx-harness records, {len(records)} requests"}
    return ReportRun(folder.resolve().name, facts, (point,), tuple(records))


def _theoretical(path: Path) -> float | None:
    """The harness's own ceiling, in whole blocks of the trace; None where it left no summary."""
    try:
        hit = msgspec.json.decode(path.read_bytes(), type=_Summary).theoretical_prefix_cache_hit
    except (OSError, msgspec.DecodeError):
        return None
    return None if hit is None or not hit.count else hit.sum / hit.count


def _records(rows: list[_Row]) -> list[RequestRecord]:
    profiled = [row.metadata.request_start_ns for row in rows if row.metadata.benchmark_phase == "profiling"]
    zero = min(profiled or [row.metadata.request_start_ns for row in rows], default=0)
    roots: dict[str, int] = {}
    streams: dict[tuple[int, str], int] = {}
    found = []
    for row in sorted(rows, key=lambda row: row.metadata.request_start_ns):
        meta = row.metadata
        own = meta.x_correlation_id or meta.conversation_id
        root = roots.setdefault(meta.root_correlation_id or own, len(roots))
        stream = streams.setdefault((root, own), sum(1 for key in streams if key[0] == root))
        found.append(_record(row, zero, root, stream))
    return found


def _record(row: _Row, zero_ns: int, lane: int, stream: int) -> RequestRecord:
    meta = row.metadata
    start = (meta.request_start_ns - zero_ns) * 1e-9
    end = (meta.request_end_ns - zero_ns) * 1e-9
    ttft, latency = _seconds(row, "time_to_first_token"), _seconds(row, "request_latency")
    full = _seconds(row, "full_response_inter_token_latency")
    output = _count(row, "usage_completion_tokens", "output_sequence_length")
    if full is not None and ttft is not None and output > 1:
        end = start + ttft + full * (output - 1)
    prompt = _count(row, "usage_prompt_tokens", "input_sequence_length")
    cached = next((name for name in _CACHED if name in row.metrics), None)
    return RequestRecord(
        concurrency=1,
        lane=lane,
        tree=meta.source_trace_id or meta.conversation_id,
        visit=0,
        stream=stream,
        turn=meta.turn_index,
        role="subagent" if meta.agent_depth else _ROLES.get(meta.source_kind or "", "main"),
        phase="profile" if meta.benchmark_phase == "profiling" else "warmup",
        status="cut" if meta.was_cancelled else "failed" if row.error else "ok",
        error="" if not row.error else str(row.error)[:200],
        due_s=start,
        start_s=start,
        first_s=None if ttft is None else start + ttft,
        last_s=None if latency is None else start + latency,
        end_s=end,
        planned_prompt_tokens=prompt,
        prompt_tokens=prompt,
        cached_tokens=int(row.metrics[cached].value) if cached else None,
        ceiling_tokens=None,
        planned_output_tokens=output,
        output_tokens=output,
    )


_CACHED = ("usage_prompt_cache_read_tokens", "usage_cached_tokens", "usage_prompt_cached_tokens")


def _seconds(row: _Row, name: str) -> float | None:
    metric = row.metrics.get(name)
    return None if metric is None else metric.seconds()


def _count(row: _Row, *names: str) -> int:
    return next((int(row.metrics[name].value) for name in names if name in row.metrics), 0)
