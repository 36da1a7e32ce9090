"""Small artifacts as the official harness leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import Any

from samovar.workload.metrics_agentx import EXPORT, METRICS, SUMMARY
from samovar.workload.metrics_agentx_prompts import RAW


def letters(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """A token per letter, and one per message, as a chat template adds."""
    return [code for m in messages for code in (0, *map(ord, m["content"]))]


def raw(request_id: str, start_ns: int, *contents: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": content} for content in contents]
    return {
        "metadata": {"x_request_id": request_id, "request_start_ns": start_ns, "benchmark_phase": "profiling"},
        "payload": {"model": "m", "messages": messages},
    }


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def call(t: float, *ids: int) -> dict[str, Any]:
    return {"t": t, "type": "n", "model": "m", "in": 64 * len(ids) + 5, "out": 3, "hash_ids": list(ids)}


def group(t: float, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"t": t, "type": "subagent", "agent_id": "a", "requests": list(calls)}


def artifacts(folder: Path, *, theoretical: tuple[int, int] = (5, 7)) -> Path:
    """Beside `traces` and an empty `tokenizer`. Of a run that warmed up on the first call and measured the other two; a
    third one was cut off."""
    traces, tokenizer, out = (folder / name for name in ("traces", "tokenizer", "artifacts"))
    for made in (traces, tokenizer, out):
        made.mkdir()
    rows = [call(0.0, 1, 2), group(1.0, call(2.0, 1, 2, 3)), call(5.0, 1, 2, 3, 4), call(6.0, 9)]
    (traces / "x.json").write_text(json.dumps({"id": "x", "requests": rows}))
    contents = {"w": "abcd", "s": "abcdef", "m": "abcdefg", "c": "z"}
    places = {"w": (0, None), "s": (1, 0), "m": (2, None), "c": (3, None)}
    records = []
    for number, (name, (outer, inner)) in enumerate(places.items()):
        metadata = {
            "request_start_ns": number * 10**9, "request_end_ns": number * 10**9 + 5 * 10**8, "x_request_id": name,
            "source_trace_id": "x", "source_outer_idx": outer, "source_inner_idx": inner, "was_cancelled": name == "c",
            "benchmark_phase": "warmup" if name == "w" else "profiling", "conversation_id": "x",
        }  # fmt: skip
        metrics = {
            "usage_prompt_tokens": {"value": len(contents[name]) + 1, "unit": "tokens"},
            "usage_prompt_cache_read_tokens": {"value": 4, "unit": "tokens"},
        }
        records.append({"metadata": metadata, "metrics": metrics})
    write_lines(out / EXPORT, records)
    write_lines(
        out / RAW, [raw(name, number, text) for number, (name, text) in reversed([*enumerate(contents.items())])]
    )
    inputs = {
        "datasets": [{"path": str(traces), "format": "weka_trace", "name": None}],
        "tokenizer": {"name": str(tokenizer)},
    }
    hit, blocks = theoretical
    total = {"count": blocks, "sum": hit, "unit": "%"}
    (out / SUMMARY).write_text(json.dumps({"theoretical_prefix_cache_hit": total, "input_config": inputs}))
    return out


def tell_block_size(out: Path, tokens: int) -> None:
    """As the server's metrics do."""
    series = {"series": [{"labels": {"block_size": str(tokens)}}]}
    (out / METRICS).write_text(json.dumps({"metrics": {"vllm:cache_config_info": series, "other": {}}}))
