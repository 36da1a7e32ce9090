"""The figures against numpy and hand-made arithmetic."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import numpy as np
import pytest

from samovar.base.errors import ConfigError
from samovar.workload.metrics import inverse, meets, parse_slo, percentile, summarise
from samovar.workload.metrics_agentx import EXPORT, SUMMARY, read_export
from samovar.workload.metrics_ceiling import InfiniteCache
from samovar.workload.metrics_cost import price_of
from samovar.workload.metrics_groups import breakdowns
from samovar.workload.metrics_record import RequestRecord, read_records


def record(**changes: object) -> RequestRecord:
    values: dict[str, object] = {
        "concurrency": 2, "lane": 0, "tree": "t", "visit": 0, "stream": 0, "turn": 0, "role": "main",
        "phase": "profile", "status": "ok", "due_s": 0.0, "start_s": 0.0, "first_s": 1.0, "last_s": 2.0, "end_s": 3.0,
        "planned_prompt_tokens": 100, "prompt_tokens": 100, "cached_tokens": 60, "ceiling_tokens": 80,
        "planned_output_tokens": 11, "output_tokens": 11, "tree_turns": 4,
    }  # fmt: skip
    return RequestRecord(**{**values, **changes})  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], q: float) -> None:
    assert percentile(values, q) == pytest.approx(float(np.percentile(values, q)), abs=1e-6)


def test_percentiles_of_nothing_and_of_what_never_came() -> None:
    assert percentile([], 90) is None
    assert percentile([1.0, math.inf], 0) == 1.0
    assert percentile([1.0, math.inf], 90) == math.inf
    assert percentile([math.inf, math.inf], 50) == math.inf
    assert inverse(math.inf) == 0.0
    assert inverse(None) is None


def test_times_of_one_request() -> None:
    one = record()
    assert (one.ttft_s, one.latency_s, one.itl_s, one.full_itl_s) == (1.0, 2.0, 0.1, 0.2)
    assert one.e2e_per_token_s == pytest.approx(2 / 11)
    short = record(output_tokens=1)
    assert (short.itl_s, short.full_itl_s, short.e2e_per_token_s) == (None, None, 2.0)
    silent = record(first_s=None, last_s=None, output_tokens=0)
    assert (silent.ttft_s, silent.latency_s, silent.itl_s, silent.e2e_per_token_s) == (None,) * 4


@pytest.mark.parametrize(
    ("cached", "ceiling", "kind"),
    [
        (None, 5, "unknown"),
        (5, None, "unknown"),
        (0, 0, "cold"),
        (64, 64, "whole"),
        (80, 64, "whole"),
        (16, 64, "part"),
        (0, 64, "lost"),
    ],
)
def test_hit_classes(cached: int | None, ceiling: int | None, kind: str) -> None:
    assert record(cached_tokens=cached, ceiling_tokens=ceiling).hit_class == kind


def test_a_point_by_hand() -> None:
    records = [
        record(start_s=1.0, first_s=2.0, last_s=4.0, end_s=4.0),
        record(start_s=3.0, first_s=4.0, last_s=8.0, end_s=9.0, prompt_tokens=110, cached_tokens=0, lane=1),
        record(status="failed", error="HTTP 500", output_tokens=0, first_s=None, last_s=None, end_s=99.0),
        record(status="cut", error="cut", end_s=100.0),
        record(phase="warmup", start_s=-50.0),
    ]
    point = summarise(records, concurrency=2, gpus=2, price=price_of("x", own=3.6, rent=None), slo={"ttft_s": 1.5})
    assert (point.issued, point.ok, point.failed, point.cut, point.warmup_requests) == (4, 2, 1, 1, 1)
    assert point.errors == {"HTTP 500": 1}
    assert point.window_s == 8.0
    assert point.full_itl_s.p90 == pytest.approx(np.percentile([0.2, 0.5], 90))
    assert point.p90_interactivity == pytest.approx(1 / np.percentile([0.2, 0.5], 90))
    assert point.p90_interactivity_last_token == pytest.approx(1 / np.percentile([0.2, 0.4], 90))
    assert point.p90_e2e_interactivity == pytest.approx(1 / np.percentile([3 / 11, 5 / 11], 90))
    assert point.mean_e2e_interactivity == pytest.approx(22 / 8)
    assert point.p90_interactivity_all == 0.0
    assert point.tokens_per_gpu_s == pytest.approx((210 + 22) / 8 / 2)
    split = (point.computed_per_gpu_s, point.cached_per_gpu_s, point.generated_per_gpu_s)
    assert split == pytest.approx((150 / 16, 60 / 16, 22 / 16))
    assert sum(split) == pytest.approx(point.tokens_per_gpu_s)
    assert (point.hit_rate, point.hit_ceiling) == pytest.approx((60 / 210, 160 / 200))
    assert point.prompt_drift == pytest.approx(0.05)
    assert (point.slo_met, point.goodput_per_s) == (2, 0.25)
    (cost,) = point.costs
    spent = 3.6 * 2 * 8 / 3600
    assert cost.basis == "own"
    assert cost.per_million_tokens == pytest.approx(spent / 232 * 1e6)
    assert cost.per_million_uncached_tokens == pytest.approx(spent / 172 * 1e6)
    assert (cost.per_turn, cost.per_session) == pytest.approx((spent / 2, spent / 0.5))


def test_a_point_without_requests_has_no_figures_and_no_division() -> None:
    point = summarise([], concurrency=1, price=price_of("H200"))
    assert (point.ok, point.window_s, point.p90_interactivity, point.hit_rate, point.hit_ceiling) == (
        0,
        0,
        None,
        None,
        None,
    )
    assert {cost.per_turn for cost in point.costs} == {None}
    assert msgspec.json.decode(msgspec.json.encode(point), type=type(point)) == point


def test_a_server_that_does_not_count_cached_tokens_has_no_hit_rate() -> None:
    point = summarise([record(), record(cached_tokens=None)], concurrency=1)
    assert (point.hit_rate, point.cached_tokens) == (None, None)


def test_slos() -> None:
    limits = parse_slo(["p90_interactivity=5", "TTFT_s=1"])
    assert limits == {"interactivity": 5, "ttft_s": 1}
    assert meets(record(), limits)
    assert not meets(record(end_s=3.01), limits)
    assert not meets(record(first_s=1.01), limits)
    for wrong in ("p90_speed=3", "ttft_s=0", "ttft_s", "ttft_s=x", "ttft_s=nan"):
        with pytest.raises(ConfigError, match=f"--slo {wrong}: must be NAME=NUMBER"):
            parse_slo([wrong])


def test_every_request_is_in_one_row_of_every_breakdown() -> None:
    sizes = [0, 1, 900, 1024, 1025, 5000, 200_000]
    records = [
        record(role=role, turn=turn, planned_prompt_tokens=size, status=status)
        for role, turn, size, status in itertools.product(
            ("main", "subagent", "aux"), (0, 1, 4, 5, 300), sizes, ("ok", "failed")
        )
    ]
    tables = breakdowns([*records, record(phase="warmup")])
    assert list(tables) == ["role", "turn of the agent", "context length", "cache"]
    for groups in tables.values():
        assert sum(group.requests for group in groups) == len(records)
        assert sum(group.failed for group in groups) == len(records) // 2
    assert [g.name for g in tables["role"]] == ["main agent", "sub-agent", "side call"]
    assert [g.name for g in tables["turn of the agent"]] == ["1", "2 to 5", "6 to 10", "101 and later"]
    assert [g.name for g in tables["context length"]] == ["0K to 1K", "1K to 2K", "4K to 8K", "128K to 256K"]


def test_prices_come_from_the_dated_table_another_file_or_the_command_line(tmp_path: Path) -> None:
    h200 = price_of("H200")
    assert (h200.own, h200.rent, h200.date) == (1.22, 2.90, "2026-07")
    # 5,000 tokens/s and accelerator: the dashboard's own example.
    point = summarise([record(start_s=0, end_s=1, prompt_tokens=4900, output_tokens=100)], concurrency=1, price=h200)
    assert [round(cost.per_million_tokens or 0, 3) for cost in point.costs] == [0.068, 0.161]
    table = tmp_path / "mine.toml"
    table.write_text('date = "2030-01"\n[gpu.X1]\nrent = 2\n')
    assert price_of("X1", table).rent == 2
    assert price_of("X1", table, own=1.5).own == 1.5
    with pytest.raises(ConfigError, match="--gpu H200: the price table has X1"):
        price_of("H200", table)
    for text, named in (("x", "not TOML"), ("gpu.A.own = true", r"gpu.A.own is True"), ("gpu = 3", "gpu is 3")):
        table.write_text(text)
        with pytest.raises(ConfigError, match=named):
            price_of("A", table)
    with pytest.raises(ConfigError, match="cannot read"):
        price_of("A", tmp_path / "absent.toml")


@given(st.lists(st.lists(st.integers(0, 1), max_size=12), max_size=12), st.integers(1, 4))
def test_the_ceiling_is_that_of_a_brute_force_cache(prompts: list[list[int]], block: int) -> None:
    cache = InfiniteCache(block)
    seen: set[tuple[int, ...]] = set()
    for prompt in prompts:
        found = 0
        while (found + 1) * block < len(prompt) and tuple(prompt[: (found + 1) * block]) in seen:
            found += 1
        seen |= {tuple(prompt[: size * block]) for size in range(1, len(prompt) // block + 1)}
        assert cache.look_up(np.array(prompt, dtype=np.int32)) == found * block


def test_the_ceiling_knows_answers_too() -> None:
    cache = InfiniteCache(2)
    cache.look_up(np.array([1, 2, 3], dtype=np.int32))
    cache.add(np.array([1, 2, 3, 4], dtype=np.int32))
    assert cache.look_up(np.array([1, 2, 3, 4, 5], dtype=np.int32)) == 4
    with pytest.raises(ConfigError, match="--block-size is 0"):
        InfiniteCache(0)


def test_a_record_survives_its_file_and_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    records = [record(), record(cached_tokens=None, error="é\n")]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, records)) + b"\n")
    assert list(read_records(path)) == records
    path.write_bytes(path.read_bytes() + b'{"lane": 3}\n')
    with pytest.raises(ConfigError, match=r"requests.jsonl, line 3: not a request record: .*concurrency"):
        list(read_records(path))
    with pytest.raises(ConfigError, match="cannot read"):
        list(read_records(tmp_path / "absent"))


def agentx_row(number: int, itl_ms: float, phase: str = "profiling") -> dict[str, object]:
    start = 10**18 + number * 10**9
    metrics = {
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "request_latency": {"value": 100 + 10 * itl_ms, "unit": "ms"},
        "full_response_inter_token_latency": {"value": itl_ms + 1, "unit": "ms"},
        "output_sequence_length": {"value": 99, "unit": "tokens"},
        "usage_completion_tokens": {"value": 11, "unit": "tokens"},
        "usage_prompt_tokens": {"value": 500, "unit": "tokens"},
    }
    metadata = {
        "conversation_id": "c", "turn_index": number, "benchmark_phase": phase, "request_start_ns": start,
        "request_end_ns": start + 10**9, "agent_depth": number % 2, "x_correlation_id": f"x{number % 2}",
        "root_correlation_id": "x0", "source_kind": "weka_main",
    }  # fmt: skip
    return {"metadata": metadata, "metrics": metrics, "error": None}


def test_the_harness_s_own_records_give_the_same_percentiles(tmp_path: Path) -> None:
    itls = [float(n) for n in range(1, 31)]
    rows = [agentx_row(0, 999, "warmup"), *(agentx_row(n, itl) for n, itl in enumerate(itls))]
    (tmp_path / EXPORT).write_text("\n".join(map(json.dumps, rows)))
    run = read_export(tmp_path)
    (point,) = run.points
    assert (point.concurrency, point.ok, point.warmup_requests) == (1, 30, 1)
    assert point.p90_interactivity_last_token == pytest.approx(1000 / np.percentile(itls, 90))
    assert point.p90_interactivity == pytest.approx(1000 / np.percentile([itl + 1 for itl in itls], 90))
    assert point.p90_e2e_interactivity == pytest.approx(11_000 / np.percentile([100 + 10 * itl for itl in itls], 90))
    assert {r.role for r in run.records} == {"main", "subagent"}
    assert {r.stream for r in run.records} == {0, 1}
    assert (point.hit_rate, point.hit_ceiling) == (None, None)
    (tmp_path / SUMMARY).write_text('{"theoretical_prefix_cache_hit": {"unit": "%", "count": 522, "sum": 516}}')
    assert read_export(tmp_path).points[0].hit_ceiling == pytest.approx(0.98851, abs=1e-5)
    (tmp_path / EXPORT).write_text('{"metadata": {}}')
    with pytest.raises(ConfigError, match=rf"{EXPORT}, line 1: not a record of the harness"):
        read_export(tmp_path)


def test_failures_of_the_warm_up_are_counted_apart() -> None:
    records = [record(phase=phase, status=s) for phase in ("warmup", "profile") for s in ("ok", "failed", "cut")]
    point = summarise([*records, record(phase="warmup", status="failed")], concurrency=2)
    assert (point.warmup_requests, point.warmup_failed) == (4, 2)
    assert (point.issued, point.ok, point.failed, point.cut) == (3, 1, 1, 1)
