"""Made-up loads have the statistics asked for, and the same bytes for the same seed."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest

from samovar.base.errors import ConfigError
from samovar.workload.kv_size import KVSize
from samovar.workload.stats import TraceStats, trace_stats
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from samovar.workload.weka_writer import encode_weka

KV = KVSize("a model", 1)


def _stats(config: SynthConfig) -> TraceStats:
    return trace_stats(synthesise(config), KV)


@pytest.mark.parametrize("seed", [0, 1])
def test_two_hundred_sessions_are_like_the_published_ones(seed: int) -> None:
    stats = _stats(SynthConfig(seed=seed))
    for found, median, p90 in (
        (stats.turns, 43, 157),
        (stats.input_tokens, 142_000, 300_000),
        (stats.output_tokens, 444, 900),
        (stats.times.gap_s, 10, 120),
    ):
        assert found.p50 == pytest.approx(median, rel=0.05)
        assert found.p90 == pytest.approx(p90, rel=0.05)
    assert stats.totals.sessions == 200
    assert stats.subagents.sessions_marked / 200 == pytest.approx(0.44, abs=0.005)
    assert stats.subagents.per_session.p50 == 4
    assert stats.subagents.unmarked == stats.subagents.side_calls == 0
    assert stats.ceiling.tokens >= 0.96


def test_other_figures_are_met_too() -> None:
    config = SynthConfig(
        sessions=40, turns_median=12, turns_p90=30, input_median=40_000, input_p90=70_000, output_median=100,
        output_p90=400, gap_median_s=3, gap_p90_s=9, subagent_share=0.25, subagents_median=2,
    )  # fmt: skip
    stats = _stats(config)
    assert (stats.turns.p50, stats.turns.p90) == pytest.approx((12, 30), rel=0.05)
    assert (stats.input_tokens.p50, stats.input_tokens.p90) == pytest.approx((40_000, 70_000), rel=0.05)
    assert (stats.output_tokens.p50, stats.output_tokens.p90) == pytest.approx((100, 400), rel=0.05)
    assert stats.times.gap_s.p50 == pytest.approx(3, rel=0.05)
    assert stats.subagents.sessions_marked == 10
    assert stats.subagents.per_session.p50 == 2


def _digest(config: SynthConfig) -> str:
    found = sha256()
    for session in synthesise(config):
        found.update(encode_weka(session))
    return found.hexdigest()


def test_the_same_seed_makes_the_same_bytes() -> None:
    small = {"sessions": 4, "turns_median": 10, "turns_p90": 20}
    assert _digest(SynthConfig(seed=3, **small)) == _digest(SynthConfig(seed=3, **small))  # type: ignore[arg-type]
    assert _digest(SynthConfig(seed=3, **small)) != _digest(SynthConfig(seed=4, **small))  # type: ignore[arg-type]


@pytest.mark.parametrize("sessions", [1, 2, 7])
def test_sessions_hold_together(sessions: int) -> None:
    for session in synthesise(SynthConfig(sessions=sessions, subagent_share=1.0, seed=sessions)):
        assert len(session.streams) > 1 or session.num_turns < 4
        for stream in session.streams:
            for before, turn in pairwise(stream.turns):
                assert turn.start_s >= before.end_s - 1e-9
                assert len(turn.blocks) == turn.input_tokens // session.block_tokens
            if stream.parent is not None:
                assert stream.spawn_turn is not None
                assert stream.start_s >= session.main.turns[stream.spawn_turn].end_s - 1e-9
                if stream.join_turn is not None:
                    assert session.main.turns[stream.join_turn].start_s >= stream.end_s - 1e-6


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"sessions": 0}, "--sessions is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"input_median": 1e15, "input_p90": 1e16}, "--input-p90 is 1e+16; it must be at most"),
        ({"turns_median": 0}, "--turns-p90"),
        ({"input_p90": 5}, "--input-p90 is 5; it must be at least --input-median"),
        ({"gap_median_s": -1}, "--gap-p90-s"),
        ({"subagent_share": 1.5}, "--subagent-share is 1.5"),
        ({"decode_tokens_per_s": 0}, "--decode-tokens-per-s"),
        ({"input_median": 1000}, "--input-median is 1000; it must be more than tool definitions"),
    ],
)
def test_impossible_wishes_are_refused(change: dict[str, float], flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SynthConfig(**change)  # type: ignore[arg-type]
    assert flag in caught.value.message
