"""What a tier's loads are estimated to take, and the write budget."""

from __future__ import annotations

import pytest

from samovar.kv.rates import PROBE_EVERY_S, Rate
from samovar.kv.write_budget import WriteBudget


def test_it_starts_where_it_is_told_and_follows_what_is_measured() -> None:
    rate = Rate(2e9, 1_000_000)
    assert rate.estimate_s(10_000_000, 0.0) == pytest.approx(0.005)
    rate.measured(250_000_000, 1.25, 0.0)
    assert rate.bytes_per_s == pytest.approx(2e8, rel=0.07)
    for now in range(10):
        rate.measured(250_000_000, 0.125, float(now))
    assert rate.bytes_per_s == pytest.approx(2e9, rel=0.5)


def test_large_loads_count_for_more_than_small_ones() -> None:
    rate = Rate(1e9, 1000)
    rate.measured(1_000_000, 0.001, 0.0)
    rate.measured(1000, 0.001, 0.0)  # one block, nearly all of it overhead
    assert rate.bytes_per_s == pytest.approx(5e8, rel=0.05)
    for _ in range(10):
        rate.measured(1_000_000, 0.001, 0.0)
    assert rate.bytes_per_s == pytest.approx(1e9, rel=0.15)


def test_a_tier_that_was_slow_once_gets_another_chance() -> None:
    rate = Rate(1e9, 1000)
    rate.measured(1_000_000, 10.0, 0.0)
    assert rate.estimate_s(1_000_000, 0.0) > 5.0
    assert rate.estimate_s(1_000_000, 1200.0) < 0.05 * rate.estimate_s(1_000_000, 0.0)
    assert rate.bytes_per_s == pytest.approx(1e5, rel=0.1), "the last measurement"


def test_old_measurements_count_for_less_than_new_ones() -> None:
    rate = Rate(1e9, 1000)
    rate.measured(100_000, 0.1, 0.0)
    rate.measured(100_000, 0.0001, 600.0)
    assert rate.bytes_per_s > 3e8


def test_nothing_is_measured_of_no_bytes_or_no_time() -> None:
    rate = Rate(1e9, 1000)
    rate.measured(0, 1.0, 0.0)
    rate.measured(1000, 0.0, 0.0)
    assert rate.bytes_per_s == pytest.approx(1e9)


def test_what_is_queued_goes_first() -> None:
    rate = Rate(1000.0, 10)
    rate.queued(500, 0.0)
    assert rate.estimate_s(1000, 0.0) == pytest.approx(1.5) and rate.bare_s(1000) == pytest.approx(1.0)
    rate.done(500)
    rate.check(0)
    with pytest.raises(AssertionError):
        rate.check(500)


def test_a_budget_saves_up_to_its_burst() -> None:
    budget = WriteBudget(100.0, 50, 10)
    assert budget.left_bytes(5.0) == 50
    budget.spend(45)
    assert budget.when(10, 5.0) == pytest.approx(5.05)
    assert budget.left_bytes(5.2) == pytest.approx(25)
    assert budget.left_bytes(99.0) == 50
    assert budget.when(1000, 99.0) == 99.0, "more than a burst is never there"


def test_a_wait_is_never_nothing() -> None:
    budget = WriteBudget(1e12, 10, 10)
    budget.left_bytes(1.7e9)
    budget.spend(10)
    assert budget.when(10, 1.7e9) > 1.7e9


def test_no_budget_is_no_limit_and_a_small_burst_allows_one_block() -> None:
    budget = WriteBudget(None, 0, 10)
    budget.spend(10**15)
    assert budget.left_bytes(0.0) == float("inf") == budget.left_bytes(1.0) and budget.when(1e18, 1.0) == 1.0
    assert WriteBudget(1.0, 0, 10).left_bytes(0.0) == 10


def test_a_guess_is_out_of_the_sum_once_enough_is_measured() -> None:
    rate = Rate(3e9, 1_000_000)
    rate.measured(8_000_000, 8e6 / 20e9, 0.0)
    assert 3e9 < rate.bytes_per_s < 10e9
    rate.measured(8_000_000, 8e6 / 20e9, 0.0)
    assert rate.bytes_per_s == pytest.approx(20e9)
    assert rate.estimate_s(1_000_000, 2000.0) == pytest.approx(1e6 / 3e9, rel=0.01), "that was long ago"


# -- trying a tier out ------------------------------------------------------------------------------------------------


def test_a_guess_is_tried_with_what_takes_little_time_by_it() -> None:
    rate = Rate(3e9, 1_000_000, probes=True)
    assert rate.probe_blocks(1000, 0.0) in (59, 60) and rate.probe_blocks(7, 0.0) == 7
    assert Rate(3e9, 1_000_000).probe_blocks(1000, 0.0) == 0, "it is no guess"
    assert Rate(3e9, 100_000_000, probes=True).probe_blocks(1000, 0.0) == 0, "a block would take too long"
    rate.queued(60_000_000, -PROBE_EVERY_S)
    assert rate.probe_blocks(1000, 0.0) == 0, "what is queued takes the time"
    rate.done(30_000_000)
    assert rate.probe_blocks(1000, 0.0) in (29, 30)


def test_whoever_loaded_lately_knows() -> None:
    rate = Rate(3e9, 1_000_000, probes=True)
    rate.queued(1_000_000, 5.0)
    rate.done(1_000_000)
    rate.measured(1_000_000, 0.1, 5.1)
    assert rate.probe_blocks(100, 5.0 + PROBE_EVERY_S - 0.1) == 0
    again = rate.probe_blocks(100, 5.0 + PROBE_EVERY_S)
    assert 0 < again < 20, "it was slow: less is tried"
    rate.queued(0, 99.0)
    assert rate.probe_blocks(100, 99.0) > 0, "a load that takes nothing from here"


def test_a_tier_behind_a_slower_part_is_not_tried() -> None:
    """The load would be measured as this one's, also where both are short."""
    host, disk = Rate(3e9, 1_000_000, probes=True), Rate(1e9, 1_000_000, probes=True)
    for in_host, tried in ((10, 20), (50, 0), (500, 0)):
        before = host.share("host", in_host, None, 0.0)
        assert before.probe_blocks >= min(in_host, 59)
        assert disk.share("disk", 100, before, 0.0).probe_blocks == tried
    assert disk.share("disk", 100, None, 0.0).probe_blocks == 20


def test_a_budget_that_is_asked_often_says_what_one_says_that_is_not() -> None:
    seldom, often = (WriteBudget(0.3, 7.1, 1) for _ in range(2))
    for budget in (seldom, often):
        budget.left_bytes(0.1)
        budget.spend(6)
    for tick in range(1, 1000):
        often.left_bytes(0.1 + tick / 97)
    assert often.left_bytes(12.3) == seldom.left_bytes(12.3) and often.when(7, 12.4) == seldom.when(7, 12.4)
