"""Who goes first when what waits does not fit: a turn whose context is still on the device."""

from __future__ import annotations

import pytest

from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output

DEPTHS = pytest.mark.parametrize("depth", [1, 2])
A, A_AGAIN, B, C = 1, 2, 3, 4


def prompt(seed: int, num_blocks: int) -> list[int]:
    return [(seed * 31 + i * 7 + i // 13) % 50 for i in range(16 * num_blocks)]


def crowded(depth: int, num_blocks: int = 32, **cold) -> Bench:
    """A's first turn is over and its 10 blocks are there, B runs in 12, C waits for 16; then A's next turn comes."""
    bench = Bench(num_blocks=num_blocks, max_model_len=512, depth=depth)
    bench.submit(make_request(A, prompt(1, 10), 2))
    bench.drain()
    bench.submit(make_request(B, prompt(2, 12), 8))
    bench.step()
    bench.submit(make_request(C, prompt(3, 16), 4, **cold), make_request(A_AGAIN, prompt(1, 12), 4))
    return bench


def ended_well(bench: Bench) -> None:
    bench.drain()
    for number, text, count in ((B, prompt(2, 12), 8), (C, prompt(3, 16), 4), (A_AGAIN, prompt(1, 12), 4)):
        assert bench.tokens[number] == expected_output(text, count)


@DEPTHS
def test_a_warm_turn_goes_before_who_would_push_it_off(depth: int) -> None:
    bench = crowded(depth)
    ended_well(bench)
    assert bench.first_token_step[A_AGAIN] < bench.first_token_step[C]
    assert bench.cached[A_AGAIN] == 160, "all that its first turn left"


@DEPTHS
def test_in_order_of_arrival_where_all_of_them_fit(depth: int) -> None:
    bench = crowded(depth, num_blocks=128)
    ended_well(bench)
    assert bench.first_token_step[C] <= bench.first_token_step[A_AGAIN]


@DEPTHS
def test_priority_comes_before_warmth(depth: int) -> None:
    bench = crowded(depth, priority=-1)
    ended_well(bench)
    assert bench.first_token_step[C] < bench.first_token_step[A_AGAIN]


@DEPTHS
def test_warmth_takes_nothing_from_other_tenants(depth: int) -> None:
    bench = crowded(depth, tenant="another")
    ended_well(bench)
    assert bench.first_token_step[C] < bench.first_token_step[A_AGAIN]


@DEPTHS
def test_a_cold_one_is_passed_over_a_bounded_number_of_times(depth: int) -> None:
    """One agent's turns follow each other without a pause, each of them warm; somebody new waits."""
    bench = Bench(num_blocks=32, max_model_len=512, depth=depth, max_passed_over=5)
    bench.submit(make_request(100, prompt(1, 16), 2))
    bench.drain()
    bench.submit(make_request(101, prompt(1, 17), 6))
    bench.step()
    bench.submit(make_request(C, prompt(3, 20), 2))
    for turn in range(102, 120):
        bench.submit(make_request(turn, prompt(1, 17), 6))
        while turn - 1 not in bench.finished:
            bench.step()
    bench.drain()
    before = [turn for turn in range(102, 120) if bench.first_token_step[turn] < bench.first_token_step[C]]
    assert len(before) == 5


@DEPTHS
def test_the_half_decides(depth: int) -> None:
    """Less than half of what the prompt could hit is there: it stands where it came."""
    bench = Bench(num_blocks=32, max_model_len=512, depth=depth)
    bench.submit(make_request(A, prompt(1, 6), 2))
    bench.drain()
    bench.submit(make_request(B, prompt(2, 12), 8))
    bench.step()
    bench.submit(make_request(C, prompt(3, 15), 4), make_request(A_AGAIN, prompt(1, 16), 4))
    ids = [A_AGAIN, C]
    bench.drain()
    assert sorted(ids, key=lambda number: bench.first_token_step[number]) == [C, A_AGAIN]
