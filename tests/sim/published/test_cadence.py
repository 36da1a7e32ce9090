"""When prefill may run: T1 and T9."""

from __future__ import annotations

import pytest

from tests.sim.published.short import assert_known_miss, assert_met, judged, seen


def test_t9_exactly() -> None:
    assert_met(judged("T9", 1.0))


def test_t1_in_short() -> None:
    """Thirty-four seconds of arrivals, in which queues are only half as long as later. Published: P50 gap 8.6 times
    smaller at interval 2, mean gap 1.7 times, mean TTFT 1.6 times."""
    found = seen("T1", 0.4, ("interval 1", "interval 2"))
    one, two = found["interval 1"], found["interval 2"]
    assert one["gap_p50"] > 3.5 * two["gap_p50"] and two["gap_p50"] == pytest.approx(27, abs=2)
    assert 1.15 < one["gap_mean"] / two["gap_mean"] < 2
    assert 1.15 < one["ttft_mean"] / two["ttft_mean"] < 2


@pytest.mark.slow
def test_t1() -> None:
    """Most miss by as much as that engine's steps with prompts took longer than T6's; with 140 ms in place of T6's
    floor all come out."""
    figures = judged("T1", 1.0)
    assert_met(figures, "interval 1: requests", "interval 2: requests", "interval 2: P50 gap between tokens")
    assert_known_miss(figures, "interval 1: P50 gap between tokens", 140, 200)
    assert_known_miss(figures, "P50 gap, interval 1 over interval 2", 4.5, 6.8)
    assert_known_miss(figures, "interval 1: mean gap between tokens", 120, 170)
    assert_known_miss(figures, "interval 2: mean gap between tokens", 80, 110)
    assert_known_miss(figures, "interval 1: mean TTFT", 0.38, 0.55)
    assert_known_miss(figures, "interval 2: mean TTFT", 0.28, 0.376)
    assert figures["interval 1: P50 gap between tokens"].otherwise == "258 ms"
