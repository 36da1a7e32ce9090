"""More room for KV: T2 and T4."""

from __future__ import annotations

import pytest

from tests.sim.published.short import assert_known_miss, assert_met, judged

pytestmark = pytest.mark.slow


def test_t2_decode_context_parallelism() -> None:
    figures = judged("T2", 0.5)
    assert_met(figures, "TP8, KV in use at 64 lanes", "DCP8, KV in use at 512 lanes")
    assert_known_miss(figures, "DCP8 over TP8, tokens per GPU and second", 1.5, 2.5)


def test_t4_a_shared_pool() -> None:
    """Less memory in all, about as much found, and the longest waits are shorter."""
    figures = judged("T4", 0.7)
    p99 = "P99 TTFT, own pools over a shared one"
    assert_met(figures, *(name for name in figures if name != p99))
    assert_known_miss(figures, p99, 1.5, 2)
