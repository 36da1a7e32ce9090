"""The scheduling rules with their numbers: budget, threshold, cadence, tenants, reservation, preemption, siblings."""

from __future__ import annotations

import pytest

from samovar.base.errors import ConfigError
from samovar.core.cadence import group_gate
from samovar.core.config import EngineConfig
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output

DEPTHS = pytest.mark.parametrize("depth", [1, 2])


def prompt(seed: int, length: int) -> list[int]:
    return [(seed * 31 + i * 7 + i // 13) % 50 for i in range(length)]


def big(depth: int, **config) -> Bench:
    config.setdefault("max_num_batched_tokens", 2048)
    return Bench(num_blocks=2048, depth=depth, **config)


# -- budget and threshold ------------------------------------------------------------------------------------------


@DEPTHS
def test_without_threshold_a_long_prompt_goes_first(depth: int) -> None:
    bench = big(depth)
    bench.submit(make_request(1, prompt(1, 8192), 40), make_request(2, prompt(2, 100), 40))
    for _ in range(8):
        bench.step()
    assert bench.first_token_step[2] == 4, "B's first token comes after the fifth step"
    assert [bench.tokens_in(p).get(1) for p in bench.plans[:4]] == [2048] * 4


@DEPTHS
def test_with_a_threshold_of_512_both_run(depth: int) -> None:
    bench = big(depth, long_prefill_token_threshold=512)
    bench.submit(make_request(1, prompt(1, 8192), 40), make_request(2, prompt(2, 100), 40))
    for _ in range(20):
        bench.step()
    assert bench.tokens_in(bench.plans[0]) == {1: 512, 2: 100}
    assert bench.first_token_step[1] == 15, "A ends at step 16"
    assert bench.first_token_step[2] == 0
    assert len([p for p in bench.plans[:17] if 2 in bench.tokens_in(p)]) >= 17, "B decodes at least 16 tokens meanwhile"


@DEPTHS
def test_the_threshold_does_not_bind_a_lone_request(depth: int) -> None:
    bench = big(depth, long_prefill_token_threshold=512)
    bench.submit(make_request(1, prompt(1, 4096), 4))
    bench.step()
    assert bench.tokens_in(bench.plans[0]) == {1: 2048}


def test_the_threshold_does_not_bind_when_the_others_cannot_run() -> None:
    bench = big(1, long_prefill_token_threshold=512)
    bench.submit(make_request(1, prompt(1, 4096), 4), make_request(2, prompt(1, 4096), 4))
    bench.step()
    assert bench.tokens_in(bench.plans[0]) == {1: 2048}, "a sibling that waits for these very blocks needs no budget"


@DEPTHS
def test_steps_that_decode_take_less_prefill(depth: int) -> None:
    """Two prompts at once: together they get 256 tokens of every step in which the third request decodes, and the
    whole budget before and after."""
    bench = big(depth, max_num_mixed_prefill_tokens=256)
    bench.submit(make_request(3, prompt(3, 100), 6))
    bench.step()
    bench.submit(make_request(1, prompt(1, 5000), 4), make_request(2, prompt(2, 5000), 4))
    for _ in range(16):
        bench.step()
    decodes_beside: list[int] = []
    alone: list[int] = []
    for plan in bench.plans[1:]:
        tokens = bench.tokens_in(plan)
        prefilled = sum(count for request, count in tokens.items() if request != 3 and count > 1)
        if 3 in tokens:
            decodes_beside.append(prefilled)
        elif prefilled:
            alone.append(prefilled)
    assert decodes_beside and max(decodes_beside) == 256
    assert max(alone) == 2048


@DEPTHS
def test_more_decodes_than_budget_take_turns(depth: int) -> None:
    bench = Bench(num_blocks=64, max_num_batched_tokens=4, depth=depth)
    for i in range(10):
        bench.submit(make_request(i, prompt(i, 3), 12))
    bench.drain()
    assert all(bench.tokens[i] == expected_output(prompt(i, 3), 12) for i in range(10))
    assert max(sum(bench.tokens_in(p).values()) for p in bench.plans) <= 4


# -- cadence -------------------------------------------------------------------------------------------------------


def with_decode(depth: int, **config) -> Bench:
    """One request decoding, and one admitted prompt that never ends in the window."""
    bench = Bench(num_blocks=4096, depth=depth, max_num_batched_tokens=256, max_model_len=60_000, **config)
    bench.submit(make_request(1, [1], 1000))
    bench.step()
    bench.submit(make_request(2, prompt(2, 50_000), 4))
    return bench


def window(bench: Bench, steps: int, gates: bool = False) -> tuple[int, int]:
    """(steps with prefill, decode tokens) of the next `steps` plans."""
    seen: list = []
    counter = 0
    while len(seen) < steps:
        while (plan := bench.plan(group_gate(counter, 4) if gates else None)) is not None and len(seen) < steps:
            counter += 1
            seen.append(bench.tokens_in(plan))
        bench.apply()
    return sum(t.get(2, 0) > 1 for t in seen), sum(t.get(1, 0) == 1 for t in seen)


@DEPTHS
def test_interval_4_prefills_in_3_of_12_steps_without_dp(depth: int) -> None:
    bench = with_decode(depth, prefill_schedule_interval=4)
    while bench.runner.queue:  # the plan that was made ahead has no second request in it
        bench.apply()
    assert window(bench, 12) == (3, 12)


@DEPTHS
def test_the_gate_of_a_dp_group_does_the_same(depth: int) -> None:
    bench = with_decode(depth, prefill_schedule_interval=4)
    while bench.runner.queue:
        bench.apply()
    assert window(bench, 12, gates=True) == (3, 12)


@DEPTHS
def test_prefill_in_every_step_when_nothing_decodes(depth: int) -> None:
    bench = Bench(num_blocks=4096, depth=depth, max_num_batched_tokens=256, max_model_len=60_000,
                  prefill_schedule_interval=4)  # fmt: skip
    bench.submit(make_request(2, prompt(2, 50_000), 4))
    assert window(bench, 12) == (12, 0)


@DEPTHS
@pytest.mark.parametrize("gates", [False, True])
def test_a_queue_that_does_not_drain_stops_the_throttling(depth: int, gates: bool) -> None:
    bench = with_decode(depth, prefill_schedule_interval=4)
    while bench.runner.queue:
        bench.apply()
    for i in range(3, 6):
        bench.submit(make_request(i, prompt(i, 50), 4))  # behind a prompt that takes the whole budget
    assert window(bench, 12, gates) == (12, 12)


def test_a_request_with_a_block_left_is_never_deferred() -> None:
    bench = with_decode(1, prefill_schedule_interval=4)
    shared = prompt(9, 160)
    bench.step()
    bench.engine.finish(2, 0, bench.now)
    bench.submit(make_request(3, shared, 1))
    while 3 not in bench.finished:
        bench.step()
    bench.step()
    bench.submit(make_request(4, [*shared, 1, 2, 3], 4))
    plan = bench.step()
    assert bench.tokens_in(plan)[4] == 3 and bench.engine.stats().prefill_steps < len(bench.plans) - 4


# -- tenants -------------------------------------------------------------------------------------------------------


@DEPTHS
def test_a_short_request_of_another_tenant_waits_for_one_chunk(depth: int) -> None:
    bench = Bench(num_blocks=8192, depth=depth, max_num_batched_tokens=2048, max_model_len=110_000)
    for i in range(50):
        bench.submit(make_request(i, prompt(i, 100_000), 2, tenant="x"))
    bench.step()
    bench.submit(make_request(99, prompt(99, 1000), 2, tenant="y"))
    ahead = len(bench.plans)
    while 99 not in bench.first_token_step:
        bench.step()
    assert bench.first_token_step[99] - ahead <= 1, "one chunk of the other tenant, then its own prefill"


def test_inside_a_tenant_lower_priority_values_run_first() -> None:
    bench = Bench(max_num_batched_tokens=32, max_num_seqs=1)
    for i, priority in enumerate([5, 0, -3, 0]):
        bench.submit(make_request(i, prompt(i, 32), 1, priority=priority))
    bench.drain()
    assert list(bench.finished) == [2, 1, 3, 0]


# -- room ----------------------------------------------------------------------------------------------------------


@DEPTHS
def test_one_that_does_not_fit_does_not_block_one_that_does(depth: int) -> None:
    bench = Bench(num_blocks=27, max_model_len=27 * 16, depth=depth)
    bench.submit(make_request(1, prompt(1, 16 * 20), 30))
    bench.step()
    bench.submit(make_request(2, prompt(2, 16 * 10), 2), make_request(3, prompt(3, 20), 2))
    bench.step()
    bench.step()
    assert 3 in bench.first_token_step and 2 not in bench.first_token_step
    bench.drain()
    assert all(bench.tokens[i] for i in (1, 2, 3))


@DEPTHS
def test_one_passed_over_32_times_reserves(depth: int) -> None:
    bench = Bench(num_blocks=32, max_model_len=32 * 16, depth=depth, max_num_queued_reqs=0)
    bench.submit(make_request(0, prompt(0, 16 * 8), 16 * 20))  # keeps part of the device busy
    bench.step()
    bench.submit(make_request(1, prompt(1, 16 * 28), 2))
    for i in range(2, 120):
        bench.submit(make_request(i, prompt(i, 40), 2))
    bench.drain()
    before = [i for i in bench.finished if bench.first_token_step[i] < bench.first_token_step[1] and i > 1]
    assert 32 <= len(before) <= 40, "after 32 it waits for room and nothing is let in before it"


@DEPTHS
def test_the_cheapest_to_restore_is_preempted_and_comes_back_first(depth: int) -> None:
    # 9,000 and 200 tokens fill the device; the first to need another block takes it from the 200.
    bench = Bench(num_blocks=576, max_model_len=576 * 16, depth=depth, max_num_batched_tokens=16_384)
    bench.submit(make_request(1, prompt(1, 9000), 60))
    bench.submit(make_request(2, prompt(2, 200), 60))
    while bench.engine.stats().preemptions == 0:
        bench.step()
    bench.engine.check()
    bench.submit(make_request(3, prompt(3, 200), 60))  # an equal that has not started
    released = [i for p in bench.plans[-2:] for i in p.released]
    bench.drain()
    assert 2 in released or any(2 in p.released for p in bench.plans)
    assert 1 not in [s.request_id for p in bench.plans[2:] for s in p.starts], "the long one was never touched"
    assert bench.first_token_step[3] > max(p.step for p in bench.plans if any(s.request_id == 2 for s in p.starts)) - 1
    for i, length in ((1, 9000), (2, 200), (3, 200)):
        assert bench.tokens[i] == expected_output(prompt(i, length), 60), "no output is lost or changed"


@DEPTHS
def test_a_less_important_request_is_preempted_first(depth: int) -> None:
    bench = Bench(num_blocks=40, max_model_len=640, depth=depth)
    bench.submit(make_request(1, prompt(1, 16 * 25), 60, priority=1))
    bench.submit(make_request(2, prompt(2, 16 * 10), 60, priority=0))
    bench.drain()
    assert any(1 in p.released for p in bench.plans if p.step < bench.first_token_step[1] + 60)
    starts = [s.request_id for p in bench.plans for s in p.starts]
    assert starts.count(2) == 1 and starts.count(1) > 1


# -- siblings ------------------------------------------------------------------------------------------------------


@DEPTHS
@pytest.mark.parametrize("threshold", [0, 512])
@pytest.mark.parametrize("budget", [300, 2048, 8192])
def test_eight_siblings_compute_their_prefix_once(depth: int, threshold: int, budget: int) -> None:
    if threshold >= budget:
        threshold = 0
    bench = Bench(num_blocks=1024, depth=depth, max_num_batched_tokens=budget, long_prefill_token_threshold=threshold)
    prefix = prompt(1, 4096)
    for i in range(8):
        bench.submit(make_request(i, prefix + prompt(i + 10, 24), 3))
    bench.drain()
    prefilled = sum(c.num_tokens for p in bench.plans for c in p.chunks if c.start < 4096 + 24)
    assert prefilled == 4096 + 8 * 24
    assert sorted(bench.cached.values()) == [0] + [4096] * 7
    assert bench.engine.stats().shared_tokens == 7 * 4096
    for i in range(8):
        assert bench.tokens[i] == expected_output(prefix + prompt(i + 10, 24), 3)


@DEPTHS
def test_choices_of_one_prompt_compute_it_once(depth: int) -> None:
    bench = Bench(num_blocks=256, depth=depth, max_num_batched_tokens=512)
    for i in range(5):
        bench.submit(make_request(i, prompt(1, 1000), 30))
    bench.drain()
    computed = sum(c.num_tokens for p in bench.plans for c in p.chunks if c.start < 1000)
    assert computed == 1000 + 4 * (1000 - 992)
    # All five generate the same tokens here, so their equal blocks were found equal and kept once.
    assert bench.engine.stats().deduplicated_blocks >= 4


@DEPTHS
def test_the_leader_of_siblings_may_go_away(depth: int) -> None:
    bench = Bench(num_blocks=512, depth=depth, max_num_batched_tokens=256)
    prefix = prompt(1, 2048)
    for i in range(4):
        bench.submit(make_request(i, prefix + prompt(i + 10, 30), 3))
    for _ in range(3):
        bench.step()
    bench.engine.finish(0, 0, bench.now)
    bench.drain()
    computed = sum(c.num_tokens for p in bench.plans for c in p.chunks if c.start < 2048)
    assert computed <= 2048 + 256
    for i in range(1, 4):
        assert bench.tokens[i] == expected_output(prefix + prompt(i + 10, 30), 3)


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_blocks", 0), ("depth", 3), ("prefill_schedule_interval", 0), ("max_num_seqs", -1),
        ("long_prefill_token_threshold", 4096), ("max_model_len", 100_000), ("num_speculative_tokens", 2),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(field: str, value: int) -> None:
    settings = {"num_blocks": 512, "max_num_batched_tokens": 2048, field: value}
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**settings)
    assert caught.value.param == field
