"""The official harness's per-request records (`agentx profile`, profile_export.jsonl) as ours, for our figures.

Two hit rates of an infinite cache go by: the harness's theoretical one, over blocks of the traces, and the ceiling of
the prompts it sent, which needs them (`--export-level raw`) and the model's tokenizer. They differ by what the first
leaves out: unfinished blocks, the chat template, and calls of the trace that this run did not send.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from samovar.base.errors import ConfigError, TraceError
from samovar.workload.metrics import summarise
from samovar.workload.metrics_agentx_blocks import BlockHits, Place, count_hits, read_hits
from samovar.workload.metrics_agentx_prompts import RAW, SentPrompt, Tokenise, read_sent
from samovar.workload.metrics_record import RequestRecord
from samovar.workload.report_data import ReportRun
from samovar.workload.session import Role

EXPORT, SUMMARY, METRICS = "profile_export.jsonl", "profile_export_aiperf.json", "server_metrics_export.json"
DEFAULT_BLOCK_TOKENS = 16
THEORETICAL = "theoretical hit rate, blocks of the traces"
SAME = "the same by our count"

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
    x_request_id: str = ""
    conversation_id: str = ""
    turn_index: int = 0
    source_trace_id: str | None = None
    source_outer_idx: int | None = None
    source_inner_idx: int | None = None
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
    input_config: Any = None


class _Series(msgspec.Struct):
    labels: dict[str, str] = {}


class _Family(msgspec.Struct):
    series: list[_Series] = []


class _ServerMetrics(msgspec.Struct):
    metrics: dict[str, _Family] = {}


class _Row(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Metric] = {}
    error: Any = None


def read_export(folder: Path, tokenise: Tokenise | None = None, block_tokens: int | None = None) -> ReportRun:
    """`tokenise`: the served model's, for the ceiling of the prompts where the folder has them, in blocks of
    `block_tokens` (None: the server's); else the ceiling is the harness's theoretical rate. Raises ConfigError, naming
    file and line."""
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
    summary = _summary(folder)
    theirs, ours = _theoretical(summary), _own_theoretical(rows, summary)
    facts = {"source": f"agentx-harness records, {len(rows)} requests"}
    if theirs is not None:
        facts[THEORETICAL] = _told(theirs, ours)
    sent: dict[str, SentPrompt] = {}
    if tokenise is not None and (folder / RAW).is_file():
        block = block_tokens or _block_tokens(folder)
        sent = read_sent(folder / RAW, tokenise, block or DEFAULT_BLOCK_TOKENS)
        size = f"{block} tokens" if block else f"{DEFAULT_BLOCK_TOKENS} tokens, which the server does not tell"
        facts["ceiling"] = f"of the prompts sent, in blocks of {size}"
    elif theirs is not None:
        facts["ceiling"] = "the harness's theoretical rate"
    records = _records(rows, sent)
    concurrency = max(len({r.lane for r in records}), 1)
    records = [msgspec.structs.replace(r, concurrency=concurrency) for r in records]
    point = summarise(records, concurrency=concurrency)
    if not sent and theirs is not None:
        point = msgspec.structs.replace(point, hit_ceiling=theirs.rate)
    return ReportRun(folder.resolve().name, facts, (point,), tuple(records))


def tokenizer_folder(folder: Path) -> Path | None:
    """Of the tokenizer that the harness was run with; None when it was a hub's, or is gone."""
    name = _field(_field(_summary(folder).input_config, "tokenizer"), "name")
    return Path(name) if isinstance(name, str) and name and Path(name).is_dir() else None


def _summary(folder: Path) -> _Summary:
    """Empty where the harness left none."""
    try:
        return msgspec.json.decode((folder / SUMMARY).read_bytes(), type=_Summary)
    except (OSError, msgspec.DecodeError):
        return _Summary()


def _traces(summary: _Summary) -> list[Path]:
    """Those replayed, as far as they are still there."""
    found = _field(summary.input_config, "datasets")
    weka = [data for data in found if _field(data, "format") == "weka_trace"] if isinstance(found, list) else []
    paths = [Path(path) for data in weka if isinstance(path := _field(data, "path"), str)]
    return [path for path in paths if path.exists()]


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _theoretical(summary: _Summary) -> BlockHits | None:
    hit = summary.theoretical_prefix_cache_hit
    return None if hit is None or not hit.count else BlockHits(int(hit.sum), int(hit.count))


def _own_theoretical(rows: list[_Row], summary: _Summary) -> BlockHits | None:
    """By our count; None when the traces are gone or others."""
    hits: dict[Place, BlockHits] = {}
    for path in _traces(summary):
        try:
            hits |= read_hits(path)
        except TraceError:
            return None
    return count_hits((_place(row.metadata) for row in rows if _counts(row)), hits)


def _counts(row: _Row) -> bool:
    meta = row.metadata
    return meta.benchmark_phase == "profiling" and not row.error and not meta.was_cancelled


def _place(meta: _Metadata) -> Place:
    outer = -1 if meta.source_outer_idx is None else meta.source_outer_idx
    return meta.source_trace_id or meta.conversation_id, outer, meta.source_inner_idx


def _told(theirs: BlockHits, ours: BlockHits | None) -> str:
    told = f"{100 * (theirs.rate or 0):.2f}%, {theirs.hit_blocks} of {theirs.blocks}, as the harness counts"
    if ours is None:
        return told
    same = SAME if ours == theirs else f"{ours.hit_blocks} of {ours.blocks} by our count"
    return f"{told}; {same}"


def _block_tokens(folder: Path) -> int | None:
    """What the server's metrics told the harness; None when they did not."""
    try:
        found = msgspec.json.decode((folder / METRICS).read_bytes(), type=_ServerMetrics).metrics
    except (OSError, msgspec.DecodeError):
        return None
    family = found.get("vllm:cache_config_info")
    texts = [series.labels.get("block_size", "") for series in family.series] if family else []
    return next((int(text) for text in texts if text.isdecimal() and int(text)), None)


def _records(rows: list[_Row], sent: Mapping[str, SentPrompt]) -> list[RequestRecord]:
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
        found.append(_record(row, zero, root, stream, sent.get(meta.x_request_id)))
    return found


def _record(row: _Row, zero_ns: int, lane: int, stream: int, sent: SentPrompt | None) -> RequestRecord:
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
        planned_prompt_tokens=prompt if sent is None else sent.prompt_tokens,
        prompt_tokens=prompt,
        cached_tokens=int(row.metrics[cached].value) if cached else None,
        ceiling_tokens=None if sent is None else sent.ceiling_tokens,
        planned_output_tokens=output,
        output_tokens=output,
    )


_CACHED = ("usage_prompt_cache_read_tokens", "usage_cached_tokens", "usage_prompt_cached_tokens")


def _seconds(row: _Row, name: str) -> float | None:
    metric = row.metrics.get(name)
    return None if metric is None else metric.seconds()


def _count(row: _Row, *names: str) -> int:
    return next((int(row.metrics[name].value) for name in names if name in row.metrics), 0)
