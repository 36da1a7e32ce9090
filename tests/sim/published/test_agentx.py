"""DeepSeek-V4-Pro under AgentX load: T6, T3 and T15."""

from __future__ import annotations

import pytest

from tests.sim.published.short import assert_known_miss, assert_met, judged

pytestmark = pytest.mark.slow


def test_t6() -> None:
    figures = judged("T6", 0.05)
    assert_met(
        figures,
        "hit rate",
        "ITL, mean",
        "ITL, P90",
        "TTFT, P50",
        "decode step, P50, by the log",
        "step of a rank with both, P90, by the log",
        "steps of a rank that only decodes",
        "steps with both",
    )
    assert_known_miss(figures, "decode step, P90, by the log", 31, 34)


def test_t3_a_limit_on_chunks() -> None:
    assert_met(judged("T3", 0.1), "P90 interactivity, 512 over off")


def test_t15_sticky_beats_balanced() -> None:
    assert_met(judged("T15 routing", 0.1))


def test_t15_dcp_does_not_beat_data_parallelism_on_v4() -> None:
    assert_met(judged("T15 DCP", 0.4))
