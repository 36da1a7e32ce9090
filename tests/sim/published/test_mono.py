"""T14: what mono decode brings is largest for one session and small for eight."""

from __future__ import annotations

from benchmarks.sim_published_mono import LANES
import pytest

from tests.sim.published.short import assert_met, judged


@pytest.mark.slow
def test_t14_the_gain_shrinks() -> None:
    figures = judged("T14", 0.2)
    assert_met(figures)
    gain = "tokens per second of a request (P50) with mono decode over without, {} lanes"
    assert figures[gain.format(LANES[0])].measured > 1.5
    assert figures[gain.format(LANES[-1])].measured < 1.15
