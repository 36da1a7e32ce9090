"""Shrinking keeps the reuse, and files come back as they were written."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from samovar.base.errors import ConfigError
from samovar.workload.load import make_load
from samovar.workload.reading import read_file, read_session
from samovar.workload.scale import ScaleCounts, divisor, scale_session, scaled
from samovar.workload.session import SessionTree, common_prefix
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from samovar.workload.weka import parse_weka
from samovar.workload.weka_writer import FileNames, encode_weka, write_weka
from tests.workload.brute_force import Access
from tests.workload.made_up import loads, session_of


@settings(deadline=None)
@given(loads(most=10, longest=40, words=2), st.integers(1, 5))
def test_shared_prefixes_scale(accesses: list[Access], n: int) -> None:
    session = session_of(accesses)
    small = scale_session(session, n)
    pairs = zip(pairwise(session.main.turns), pairwise(small.main.turns), strict=True)
    for (a, b), (x, y) in pairs:
        assert common_prefix(x.blocks, y.blocks) == common_prefix(a.blocks, b.blocks) // n
    for before, after in zip(session.main.turns, small.main.turns, strict=True):
        assert len(after.blocks) == len(before.blocks) // n
        assert after.input_tokens // 4 <= len(after.blocks) <= -(-after.input_tokens // 4)
        assert after.input_tokens == before.input_tokens // n or (after.input_tokens == 1 and before.input_tokens)
        assert after.output_tokens == max(1, round(before.output_tokens / n))


def test_hit_rate_of_real_traces_stays(real_traces: Path) -> None:
    for name in ("0277", "0348", "0617"):
        (session,) = read_file(real_traces / f"trace_{name}.json", find_unmarked=False)
        small = scale_session(session, 16)
        assert small.block_tokens == 64
        assert small.tool_tokens == session.tool_tokens // 16
        rate, scaled = (_hit_share(s) for s in (session, small))
        assert scaled == pytest.approx(rate, abs=0.02)  # what remains of a coarser last block is lost


def _hit_share(session: SessionTree) -> float:
    load = make_load([session])
    return float(load.hit_tokens.sum() / load.input_tokens.sum())


@pytest.mark.parametrize("factor", [0, -1, 2, 0.3, 0.07])
def test_odd_factors_are_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="--factor"):
        divisor(factor)


def test_factors() -> None:
    assert [divisor(f) for f in (1, 0.5, 0.0625, 1 / 3, 0.333333333)] == [1, 2, 16, 3, 3]


def _same(a: SessionTree, b: SessionTree) -> None:
    assert [replace(s, turns=()) for s in a.streams] == [replace(s, turns=()) for s in b.streams]
    for one, other in zip(a.streams, b.streams, strict=True):
        assert len(one.turns) == len(other.turns)
        for x, y in zip(one.turns, other.turns, strict=True):
            assert np.array_equal(x.blocks, y.blocks)
            assert x.end_s == pytest.approx(y.end_s)
            none = np.zeros(0, dtype=np.int64)
            assert repr(replace(x, blocks=none, end_s=0)) == repr(replace(y, blocks=none, end_s=0))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_what_was_written_reads_back(seed: int) -> None:
    config = SynthConfig(sessions=3, seed=seed, input_median=30_000, input_p90=60_000, turns_median=20, turns_p90=40)
    for session in synthesise(config):
        _same(parse_weka(encode_weka(session), Path("x.json")), session)


def test_real_sub_agents_survive_scaling(real_traces: Path, tmp_path: Path) -> None:
    session = read_session(real_traces / "trace_0277.json")
    path = tmp_path / "small.json"
    write_weka(scale_session(session, 16), path)
    again = read_session(path)
    assert _links(again) == _links(session)
    assert [path.name for path in tmp_path.iterdir()] == ["small.json"]


def _links(session: SessionTree) -> list[tuple[object, ...]]:
    return sorted((s.id, s.kind, s.spawn_turn or 0, s.join_turn or 0, len(s.turns)) for s in session.streams)


def test_files_have_the_fields_that_other_readers_demand(real_traces: Path) -> None:
    """AgentX's loader forbids any other field and asks for these."""
    session = read_session(real_traces / "trace_0291.json")
    value = json.loads(encode_weka(session))
    assert set(value) == {
        "id", "models", "block_size", "hash_id_scope", "tool_tokens", "system_tokens", "requests",
    }  # fmt: skip
    call = {
        "t", "type", "model", "in", "out", "hash_ids", "input_types", "output_types", "stop", "api_time", "ttft",
        "think_time",
    }  # fmt: skip
    marker = {
        "t", "type", "agent_id", "subagent_type", "duration_ms", "total_tokens", "tool_use_count", "status", "models",
        "tool_tokens", "system_tokens", "requests",
    }  # fmt: skip
    for row in value["requests"]:
        assert set(row) <= (marker if row["type"] == "subagent" else call)
        assert row["type"] in ("n", "s", "subagent")
    times = [row["t"] for row in value["requests"]]
    assert times == sorted(times)


def test_file_names_are_safe_and_distinct() -> None:
    names = FileNames()
    assert [names.of(x) for x in ("a", "a", "../../etc", "", "a b", "a/b")] == [
        "a",
        "a-2",
        "_.._etc",
        "session",
        "a_b",
        "a_b-2",
    ]


@settings(deadline=None)
@given(st.lists(loads(most=3, longest=12, words=2), min_size=1, max_size=4), st.integers(1, 20))
def test_a_session_keeps_blocks_or_is_left_out_and_named(loads_: list[list[Access]], n: int) -> None:
    sessions = [session_of(accesses, name=str(at)) for at, accesses in enumerate(loads_)]
    longest = [max(len(access.ids) for access in accesses) for accesses in loads_]
    lost = [str(at) for at, blocks in enumerate(longest) if blocks and blocks < n]
    counts = ScaleCounts()
    if len(lost) == len(sessions):
        with pytest.raises(ConfigError, match=rf"--factor is 1/{n}: every prompt of the {len(lost)} sessions"):
            list(scaled(sessions, n, counts))
    else:
        small = list(scaled(sessions, n, counts))
        assert [s.id for s in small] == [s.id for s in sessions if s.id not in lost]
        assert counts.kept == len(small)
    assert counts.emptied == lost
    assert (counts.told() == "") == (not lost)


def test_what_was_left_out_is_named_in_one_short_line() -> None:
    assert ScaleCounts(3, [str(number) for number in range(20)]).told().endswith("0, 1, 2, 3, 4, 5, 6, 7 and 12 more")
