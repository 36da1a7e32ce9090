"""The harness's prompts and traces: its theoretical hit rate by our count, and the ceiling of what it sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import msgspec
import pytest

from samovar.base.errors import ConfigError, TraceError
from samovar.workload.metrics_agentx import SUMMARY, THEORETICAL, read_export, tokenizer_folder
from samovar.workload.metrics_agentx_blocks import BlockHits, count_hits, read_hits, trace_hits
from samovar.workload.metrics_agentx_prompts import RAW, SentPrompt, read_sent
from samovar.workload.weka import WekaFile
from tests.workload.agentx_artifacts import artifacts, call, group, letters, raw, tell_block_size, write_lines


def trace(*rows: dict[str, Any]) -> WekaFile:
    return msgspec.convert({"id": "x", "requests": list(rows)}, WekaFile)


def test_prompts_are_looked_up_in_the_order_they_were_sent(tmp_path: Path) -> None:
    path = tmp_path / RAW
    never_left = {"metadata": {"x_request_id": "n", "request_start_ns": 5}, "status": None}
    no_chat = {"metadata": {"x_request_id": "p", "request_start_ns": 6}, "payload": {"prompt": "äbcd"}}
    write_lines(
        path,
        [raw("third", 30, "äbcd", "efg"), never_left, no_chat, raw("first", 10, "äbcd"), raw("second", 20, "äbxy")],
    )
    assert read_sent(path, letters, 2) == {
        "first": SentPrompt(5, 0),
        "second": SentPrompt(5, 2),
        "third": SentPrompt(9, 4),
    }
    assert read_sent(path, letters, 5)["third"] == SentPrompt(9, 5)


def test_a_broken_raw_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / RAW
    write_lines(path, [raw("a", 1, "a"), {"metadata": {}}])
    with pytest.raises(ConfigError, match=rf"{RAW}, line 2: not a raw record of the harness: .*request_start_ns"):
        read_sent(path, letters, 16)
    write_lines(path, [raw("b", 2, "b"), {**raw("a", 1, "a"), "payload": {"messages": "hello"}}])
    with pytest.raises(ConfigError, match=rf"{RAW}, line 2: .*payload.messages"):
        read_sent(path, letters, 16)
    with pytest.raises(ConfigError, match="cannot read"):
        read_sent(tmp_path / "absent", letters, 16)


ids = st.lists(st.integers(0, 5), max_size=6)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), ids), min_size=1, max_size=12))
def test_a_block_counts_as_found_once_an_earlier_call_of_the_file_named_it(calls: list[tuple[int, list[int]]]) -> None:
    found = trace_hits(trace(*(call(t, *blocks) for t, blocks in calls)), "x")
    seen: set[int] = set()
    for row, (_, blocks) in sorted(enumerate(calls), key=lambda item: (item[1][0], item[0])):
        hits = next((at for at, block in enumerate(blocks) if block not in seen), len(blocks))
        assert found["x", row, None] == BlockHits(hits, len(blocks))
        seen.update(blocks)


@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_sub_agents_share_the_file_s_blocks_whichever_way_their_times_are_given(shift: float) -> None:
    """Once relative to the marker at 10, once absolute: between the two calls of the main agent either way."""
    file = trace(call(5.0, 1, 2), group(10.0, call(1.0 + shift, 1, 7), call(2.0 + shift, 1, 7, 8)), call(20.0, 1, 7, 8))
    assert trace_hits(file, "x") == {
        ("x", 0, None): BlockHits(0, 2),
        ("x", 1, 0): BlockHits(1, 2),
        ("x", 1, 1): BlockHits(2, 3),
        ("x", 2, None): BlockHits(3, 3),
    }


def test_a_sub_agent_before_the_main_agent_s_first_call_is_not_replayed() -> None:
    file = trace(group(0.0, call(0.0, 1)), call(1.0, 1, 2), group(2.0, call(0.0, 1, 2)))
    assert trace_hits(file, "x") == {("x", 1, None): BlockHits(0, 2), ("x", 2, 0): BlockHits(2, 2)}


def test_calls_that_are_not_in_the_traces_give_no_count() -> None:
    hits = {("x", 0, None): BlockHits(1, 2), ("x", 1, None): BlockHits(2, 2)}
    assert count_hits([("x", 0, None), ("x", 1, None), ("x", 1, None)], hits) == BlockHits(5, 6)
    assert count_hits([("x", 0, None), ("y", 0, None)], hits) is None
    assert count_hits([], hits) is None
    assert BlockHits(0, 0).rate is None


def test_the_theoretical_rate_is_the_harness_s_and_ours(tmp_path: Path) -> None:
    run = read_export(artifacts(tmp_path))
    assert run.facts[THEORETICAL] == "71.43%, 5 of 7, as the harness counts; the same by our count"
    assert run.facts["ceiling"] == "the harness's theoretical rate"
    assert run.points[0].hit_ceiling == pytest.approx(5 / 7)


def test_a_theoretical_rate_that_differs_says_so(tmp_path: Path) -> None:
    run = read_export(artifacts(tmp_path, theoretical=(6, 7)))
    assert run.facts[THEORETICAL] == "85.71%, 6 of 7, as the harness counts; 5 of 7 by our count"


@pytest.mark.parametrize("content", [None, "{", '{"id": "other", "requests": []}'])
def test_without_the_traces_only_the_harness_s_count_is_told(tmp_path: Path, content: str | None) -> None:
    out = artifacts(tmp_path)
    file = tmp_path / "traces" / "x.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert read_export(out).facts[THEORETICAL] == "71.43%, 5 of 7, as the harness counts"


def test_prompts_that_were_kept_give_the_ceiling_of_what_was_sent(tmp_path: Path) -> None:
    out = artifacts(tmp_path)
    tell_block_size(out, 2)
    run = read_export(out, letters)
    assert run.facts["ceiling"] == "of the prompts sent, in blocks of 2 tokens"
    assert [r.ceiling_tokens for r in run.records] == [0, 4, 6, 0]
    (point,) = run.points
    assert (point.ok, point.cut, point.hit_rate, point.hit_ceiling) == (2, 1, 8 / 15, 10 / 15)
    assert point.prompt_drift == 0.0
    other = read_export(out, lambda messages: letters(messages) + [1])
    assert other.points[0].prompt_drift == pytest.approx(15 / 17 - 1)


def test_a_block_size_that_the_server_does_not_tell_is_the_usual_one(tmp_path: Path) -> None:
    run = read_export(artifacts(tmp_path), letters)
    assert run.facts["ceiling"] == "of the prompts sent, in blocks of 16 tokens, which the server does not tell"
    assert run.points[0].hit_ceiling == 0.0
    assert read_export(tmp_path / "artifacts", letters, 1).points[0].hit_ceiling == 12 / 15


def test_the_tokenizer_is_the_folder_that_the_harness_was_given(tmp_path: Path) -> None:
    out = artifacts(tmp_path)
    assert tokenizer_folder(out) == tmp_path / "tokenizer"
    for inputs in ({"tokenizer": {"name": "org/model"}}, {"tokenizer": None}, None, [1]):
        (out / SUMMARY).write_text(json.dumps({"input_config": inputs}))
        assert tokenizer_folder(out) is None


def test_trace_files_are_read_by_folder_or_one_and_broken_ones_are_named(tmp_path: Path) -> None:
    artifacts(tmp_path)
    file = tmp_path / "traces" / "x.json"
    assert read_hits(file) == read_hits(file.parent) != {}
    (file.parent / "y.json").write_text('{"requests": 3}')
    with pytest.raises(TraceError, match=r"y.json: not a session file: .*requests"):
        read_hits(file.parent)
    with pytest.raises(TraceError, match="cannot read"):
        read_hits(tmp_path / "absent.json")
