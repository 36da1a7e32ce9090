"""Statistics of the real traces against figures computed apart from the implementation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.errors import CheckpointError, ConfigError, TraceError
from samovar.workload.kv_size import KVSize, kv_size_of
from samovar.workload.quantities import bytes_text, count_text, median_text, time_text, tokens_text
from samovar.workload.reading import read_session, read_sessions
from samovar.workload.session import SessionTree, Stream
from samovar.workload.spread import Spread
from samovar.workload.stats import trace_stats
from samovar.workload.stats_page import stats_page
from samovar.workload.stats_rows import at_once_text, stats_blocks
from samovar.workload.stats_types import TraceStats
from tests.workload import brute_force
from tests.workload.made_up import BLOCK, turn

SAMPLE = ("0731", "0579", "0712", "0647", "0670", "0348", "0277", "0291", "0523", "0047", "0224", "0617")
KV = KVSize("a model", 1000)


def _shown(values: Spread) -> tuple[float, ...]:
    return values.p50, values.p90, values.p99, values.max, values.mean


def test_figures_of_all_real_traces(real_traces: Path) -> None:
    files = sorted(real_traces.glob("trace_*.json"))
    assert len(files) == 15
    stats = trace_stats(read_sessions(files), KV)
    plain = [brute_force.file_figures(file) for file in files]
    calls = sum(f.calls for f in plain)
    tokens = sum(f.input_tokens for f in plain)
    assert (stats.totals.sessions, stats.totals.distinct_sessions, stats.totals.calls) == (15, 15, calls)
    assert stats.totals.input_tokens == tokens
    assert stats.totals.output_tokens == sum(f.output_tokens for f in plain)
    assert stats.totals.new_blocks_tokens == 64 * sum(f.distinct_blocks for f in plain)
    assert stats.totals.unchained_blocks == 0
    assert stats.ceiling.tokens == pytest.approx(sum(f.hit_tokens for f in plain) / tokens)
    assert stats.ceiling.blocks == pytest.approx(sum(f.hit_blocks for f in plain) / sum(f.blocks for f in plain))
    assert stats.ceiling.across_sessions == pytest.approx(
        (sum(f.hit_tokens for f in plain) + sum(min(f.prefix, f.first) for f in plain[1:])) / tokens
    )
    assert _shown(stats.turns) == pytest.approx(brute_force.summary([f.calls for f in plain]))
    pairs = (
        (stats.input_tokens, [n for f in plain for n in f.inputs or []]),
        (stats.output_tokens, [n for f in plain for n in f.outputs or []]),
        (stats.times.api_s, [n for f in plain for n in f.apis or []]),
        (stats.peak_tokens, [f.peak for f in plain]),
        (stats.distinct_tokens, [64 * f.distinct_blocks for f in plain]),
        (stats.kv_peak_bytes, [1000 * f.peak for f in plain]),
        (stats.ceiling.per_session, [f.hit_tokens / f.input_tokens for f in plain]),
    )
    for found, values in pairs:
        assert _shown(found) == pytest.approx(brute_force.summary(values))
    assert stats.subagents.marked == sum(f.sub_agents for f in plain) == 9
    assert stats.subagents.sessions_marked == sum(f.sub_agents > 0 for f in plain) == 3
    assert sum(miss.tokens for miss in stats.misses) == tokens - sum(f.hit_tokens for f in plain)
    assert stats.keep_warm.hit[-1] <= stats.ceiling.tokens
    assert stats.capacity.lru[-1] == stats.capacity.optimal[-1] == pytest.approx(stats.ceiling.tokens)


@pytest.mark.parametrize("name", ["0277", "0348", "0617"])
def test_each_block_of_a_real_trace(real_traces: Path, name: str) -> None:
    session = read_session(real_traces / f"trace_{name}.json")
    accesses = [
        brute_force.Access(
            call.turn.start_s, call.turn.end_s, tuple(call.turn.blocks.tolist()), call.turn.input_tokens, 64
        )
        for call in session.calls()
    ]
    stats = trace_stats([session], KV, lanes=1)
    hits = brute_force.infinite_hits(accesses)
    new = [a.tokens - hit for a, hit, call in zip(accesses, hits, session.calls(), strict=True) if call.turn_index]
    assert _shown(stats.new_tokens) == pytest.approx(brute_force.summary(new))
    total = sum(access.tokens for access in accesses)
    for survive_s, hit in list(zip(stats.keep_warm.survive_s, stats.keep_warm.hit, strict=True))[::3]:
        assert hit == pytest.approx(brute_force.keep_warm_hits(accesses, survive_s) / total)
    assert stats.ceiling.tokens == pytest.approx(sum(hits) / total)


def test_totals_of_the_sample(real_traces: Path) -> None:
    stats = trace_stats(read_sessions([real_traces / f"trace_{name}.json" for name in SAMPLE]), KV)
    assert stats.totals.calls == 553
    assert stats.turns.p50 == 52.5
    assert round(100 * stats.ceiling.tokens, 1) == round(100 * stats.ceiling.blocks, 1) == 95.1
    assert stats.output_tokens.p50 == 223
    assert round(stats.output_tokens.mean) == 558


def test_causes_add_up_to_all_misses(real_traces: Path) -> None:
    stats = trace_stats(read_sessions([real_traces]), KV)
    assert sum(miss.calls for miss in stats.misses) == stats.totals.calls
    assert sum(miss.share for miss in stats.misses) == pytest.approx(1.0)


def test_causes_by_name() -> None:
    prompts = [[1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 9, 10], [1, 20], [1, 20, 21]]
    main = Stream("main", "main", tuple(turn(at, at, ids) for at, ids in enumerate(prompts)))
    agent = Stream("a", "subagent", (turn(2.5, 2.5, [1, 2, 50]), turn(2.7, 2.7, [1, 2, 50, 51])), "main", 2)
    stats = trace_stats([SessionTree("s", BLOCK, (main, agent), namespace="s")], KV)
    found = {miss.cause: (miss.calls, miss.tokens // BLOCK) for miss in stats.misses}
    assert found == {
        "first": (1, 4),
        "growth": (3, 3),
        "cut_in_context": (1, 2),
        "cut_to_start": (1, 1),
        "subagent": (1, 1),
    }


def test_sub_agents_of_a_real_trace(real_traces: Path) -> None:
    agents = trace_stats(read_sessions([real_traces / "trace_0277.json"]), KV).subagents
    assert (agents.per_session.max, agents.at_once.max) == (4, 3)
    assert sorted((agents.calls.min, agents.calls.p50, agents.calls.max)) == [4, 11.5, 17]
    assert agents.calls.mean * agents.calls.count == 44


def test_rows_and_page_show_every_block(real_traces: Path) -> None:
    stats = trace_stats(read_sessions([real_traces / "trace_0277.json"]), KV, skipped=["x.json: line 3: <broken>"])
    blocks = stats_blocks(stats)
    assert all(len(row) == len(block.columns) for block in blocks for row in block.rows)
    page = stats_page(stats, "A & B")
    assert "A &amp; B" in page
    assert "&lt;broken&gt;" in page
    assert "cdn" not in page.split("<div")[0]
    assert page.count('class="plotly-graph-div"') == 3
    for block in blocks:
        assert block.title in page


def test_no_session_is_an_error() -> None:
    def none() -> Iterator[SessionTree]:
        yield from ()

    with pytest.raises(TraceError, match="no session to describe"):
        trace_stats(none(), KV)


def test_kv_of_models(tmp_path: Path) -> None:
    assert kv_size_of("llama-3.1-8b").bytes_per_token == 131_072
    assert kv_size_of("Llama-3.1-70B", 1).bytes_per_token == 163_840
    with pytest.raises(ConfigError, match="not one of deepseek-v3, kimi-k2"):
        kv_size_of("gpt-9")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: holds a list"):
        kv_size_of(str(tmp_path))


@pytest.mark.model
def test_kv_of_a_checkpoint(smollm2_gguf: Path) -> None:
    assert kv_size_of(str(smollm2_gguf)).bytes_per_token == kv_size_of("smollm2-135m").bytes_per_token


def test_figures_as_text() -> None:
    assert [count_text(x) for x in (0, 0.25, 2.5, 12.4, 1234567)] == ["0", "0.25", "2.5", "12", "1,234,567"]
    assert [tokens_text(x) for x in (999, 9_999, 12_345, 123_456, 1_234_567, 6.04e9)] == [
        "999", "9,999", "12.3K", "123K", "1.2M", "6.0G",
    ]  # fmt: skip
    assert [bytes_text(x) for x in (10, 2048, 1_000_000_000, 1.5 * 2**40)] == ["10 B", "2 KiB", "954 MiB", "1.5 TiB"]
    assert [time_text(x) for x in (0.5, 9.94, 61, 600, 90_000, 400_000)] == [
        "0.5 s", "9.9 s", "61 s", "10 min", "25.0 h", "4.6 d",
    ]  # fmt: skip


def test_medians_of_counts_keep_their_half() -> None:
    shown = [median_text(x) for x in (0, 0.5, 7, 9.5, 52.5, 53.5, 52.4, 1234.5, 1e12 + 0.5)]
    assert shown == ["0", "0.5", "7", "9.5", "52.5", "53.5", "52", "1,234.5", "1.0e+12"]


def _row(stats: TraceStats, title: str, name: str) -> tuple[str, ...]:
    (row,) = (row for block in stats_blocks(stats) if block.title == title for row in block.rows if row[0] == name)
    return row


def test_rows_of_counts_show_the_half_of_a_median(real_traces: Path) -> None:
    stats = trace_stats(read_sessions([real_traces / f"trace_{name}.json" for name in SAMPLE]), KV)
    calls = _row(stats, "Distributions", "model calls per session")
    assert calls[1:] == ("52.5", "64", "65", "65", "46")
    assert _row(stats, "Distributions", "   of the main agent")[1] == "42.5"
    one = trace_stats(read_sessions([real_traces / "trace_0277.json"]), KV)
    assert _row(one, "Sub-agents", "calls per sub-agent")[1] == "11.5"
    assert _row(one, "Sub-agents", "sub-agents per session that has any")[1] == "4"


@given(st.floats(0, allow_infinity=True))
def test_figures_are_short_however_large(value: float) -> None:
    for text, most in ((count_text, 15), (median_text, 17), (tokens_text, 8), (bytes_text, 12), (time_text, 10)):
        assert len(text(value)) <= most


def test_large_figures_as_text() -> None:
    assert [count_text(x) for x in (999_999_999_999, 1.2e12, 1e300)] == ["999,999,999,999", "1.2e+12", "1.0e+300"]
    assert [tokens_text(x) for x in (9.99e11, 1.2e12)] == ["999G", "1.2e+12"]
    assert [bytes_text(x) for x in (2.0**60, 1.2e6 * 2.0**50)] == ["1,024 PiB", "1.2e+06 PiB"]
    assert [time_text(x) for x in (8.63e9, 8.64e9, 1e300)] == ["99884.3 d", "1.0e+05 d", "1.2e+295 d"]


@pytest.mark.parametrize(
    ("sessions", "shared", "lanes", "text"),
    [
        (1, False, 16, "One session"),
        (6, False, 16, "All 6 sessions at once"),
        (6, False, 6, "All 6 sessions at once"),
        (6, False, 5, "5 sessions at a time"),
        (6, False, 1, "1 session at a time"),
        (6, True, 16, "All 6 sessions at once"),
        (6, True, 1, "1 file at a time"),
    ],
)
def test_sessions_that_share_the_cache_are_counted(sessions: int, shared: bool, lanes: int, text: str) -> None:
    """`shared`: they come from two files, and those of one file run on its clock."""
    trees = []
    for at in range(sessions):
        main = Stream("main", "main", (turn(0, 1, [1, 2]),))
        trees.append(SessionTree(str(at), BLOCK, (main,), namespace=str(at * 2 // sessions if shared else at)))
    stats = trace_stats(trees, KV, lanes=lanes)
    assert stats.capacity.lanes <= stats.capacity.groups == (2 if shared else sessions)
    assert at_once_text(stats) == text
    assert text in stats_blocks(stats)[-1].help and text in stats_page(stats, "t")


def test_nothing_unusual_breaks_it(real_traces: Path) -> None:
    stats: TraceStats = trace_stats(read_sessions([real_traces / "mooncake_conversation_3000.jsonl"]), KV, lanes=1)
    assert stats.totals.calls == 3000
    assert 0 < stats.ceiling.tokens < 1
    assert stats.subagents.per_session.count == 0
