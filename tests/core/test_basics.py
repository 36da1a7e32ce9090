"""One request at a time: tokens, ends, hits and reasons."""

from __future__ import annotations

import pytest

from samovar.core.events import FinishReason
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output

DEPTHS = pytest.mark.parametrize("depth", [1, 2])


@DEPTHS
@pytest.mark.parametrize("prompt_tokens", [1, 15, 16, 17, 100])
@pytest.mark.parametrize("budget", [7, 64])
def test_a_request_gets_its_tokens(depth: int, prompt_tokens: int, budget: int) -> None:
    bench = Bench(depth=depth, max_num_batched_tokens=budget)
    prompt = [i % 50 for i in range(prompt_tokens)]
    assert bench.submit(make_request(1, prompt, 20)).error is None
    bench.drain()
    assert bench.tokens[1] == expected_output(prompt, 20)
    assert bench.finished[1] is FinishReason.LENGTH


@DEPTHS
def test_a_stop_token_ends_the_output(depth: int) -> None:
    prompt = list(range(20))
    tokens = expected_output(prompt, 12)
    stop = tokens[5]
    first = tokens.index(stop)
    bench = Bench(depth=depth)
    bench.submit(make_request(1, prompt, 12, sampling={"stop_token_ids": (stop,)}))
    bench.drain()
    assert bench.tokens[1] == tokens[: first + 1]
    assert bench.finished[1] is FinishReason.STOP
    assert bench.outputs[-1].stop_token == stop


@DEPTHS
@pytest.mark.parametrize(("prompt_tokens", "cached"), [(1000, 992), (1008, 992), (1009, 1008), (15, 0), (17, 16)])
def test_a_repeated_prompt_hits_all_but_its_last_token(depth: int, prompt_tokens: int, cached: int) -> None:
    bench = Bench(depth=depth, num_blocks=128)
    prompt = [i * 7 % 50 for i in range(prompt_tokens)]
    bench.submit(make_request(1, prompt))
    bench.drain()
    hits = bench.engine.stats().prefix_hits_tokens
    bench.submit(make_request(2, prompt))
    bench.drain()
    assert (bench.cached[1], bench.cached[2]) == (0, cached)
    assert bench.engine.stats().prefix_hits_tokens - hits == cached
    assert bench.tokens[2] == bench.tokens[1]
    assert bench.misses[2].reason == "none"


def test_generated_tokens_are_a_hit_in_the_next_turn() -> None:
    bench = Bench()
    prompt = [3] * 32
    bench.submit(make_request(1, prompt, 17))
    bench.drain()
    history = prompt + bench.tokens[1]
    bench.submit(make_request(2, history + [9] * 15))
    bench.drain()
    assert bench.cached[2] == 48  # the last generated token has no KV


def test_other_roots_never_share() -> None:
    bench = Bench()
    bench.submit(make_request(1, [1] * 64))
    bench.drain()
    bench.submit(make_request(2, [1] * 64, root=b"x" * 16))
    bench.drain()
    assert bench.cached[2] == 0


def test_a_request_without_cache_leaves_nothing_and_finds_nothing() -> None:
    bench = Bench()
    bench.submit(make_request(1, [1] * 64, use_prefix_cache=False))
    bench.drain()
    assert bench.engine.stats().num_free_blocks == 64
    bench.submit(make_request(2, [1] * 64))
    bench.drain()
    bench.submit(make_request(3, [1] * 64, use_prefix_cache=False))
    bench.drain()
    assert bench.cached[2] == bench.cached[3] == 0
    assert bench.misses[3].reason == "disabled"


def test_every_miss_has_its_reason() -> None:
    bench = Bench(num_blocks=16)
    system, user = [1] * 32, [2] * 32
    bench.submit(make_request(1, system + user, 1, session_id="a"))
    bench.drain()
    assert bench.misses[1].reason == "cold" and bench.misses[1].num_tokens == 64
    bench.submit(make_request(2, system + user + [3] * 33, 1, session_id="a"))
    bench.drain()
    assert bench.misses[2].reason == "new" and bench.cached[2] == 64
    bench.submit(make_request(3, system + [4] * 65, 1, session_id="a"))
    bench.drain()
    assert (bench.misses[3].reason, bench.misses[3].block, bench.cached[3]) == ("cut", 2, 32)
    bench.submit(make_request(4, [5] * 230, 1, session_id="b"))
    bench.drain()
    evicted_for_4 = bench.now
    bench.submit(make_request(5, system + [4] * 65, 1, session_id="a"))
    bench.drain()
    miss = bench.misses[5]
    assert (miss.reason, miss.for_request, miss.block) == ("evicted", 4, 1) and 0 < miss.at_s <= evicted_for_4
    assert sum(bench.engine.stats().misses.values()) == 5


@DEPTHS
@pytest.mark.parametrize("after", [0, 1, 3])
def test_finish_frees_within_one_step(depth: int, after: int) -> None:
    bench = Bench(depth=depth, max_num_batched_tokens=16)
    bench.submit(make_request(1, [1] * 40, 100), make_request(2, [2] * 20, 8))
    for _ in range(after):
        bench.step()
    bench.engine.finish(1, 0, bench.now)
    bench.engine.finish(1, 0, bench.now)
    if bench.runner.queue:
        bench.apply()
        while bench.runner.queue:
            bench.apply()
    bench.engine.check()
    held = bench.config.num_blocks - bench.engine.stats().num_free_blocks - bench.engine.stats().num_cached_blocks
    assert held <= 2  # request 2's own
    bench.drain()
    assert bench.tokens[2] == expected_output([2] * 20, 8)
    bench.submit(make_request(1, [1] * 40, 4))
    bench.drain()
    assert bench.tokens[1][-4:] == expected_output([1] * 40, 4)


def test_refusals_name_what_is_wrong() -> None:
    bench = Bench(num_blocks=4, max_num_queued_reqs=2, max_num_queued_tokens=60)
    long = bench.submit(make_request(1, [1] * 64)).error
    assert long.code == "context_length_exceeded" and "64" in long.message
    assert bench.submit(make_request(2, [])).error.param == "prompt"
    assert bench.submit(make_request(3, [1] * 30)).error is None
    assert bench.submit(make_request(3, [1] * 30)).error.param == "request_id"
    full = bench.submit(make_request(4, [2] * 31)).error
    assert full.code == "saturated" and "61" not in full.message and full.retry_after_s
    assert bench.submit(make_request(5, [2] * 30)).error is None
    assert bench.submit(make_request(6, [3])).error.code == "saturated"
    bench.drain()
    assert bench.engine.stats().requests_rejected == {
        "context_length_exceeded": 1, "invalid_value": 2, "saturated": 2,
    }  # fmt: skip


def test_cached_tokens_do_not_count_as_queued() -> None:
    bench = Bench(max_num_queued_tokens=100)
    bench.submit(make_request(1, [1] * 500, 1))
    bench.drain()
    cached = [1] * 496  # 31 blocks
    assert bench.submit(make_request(2, [2] * 90)).error is None
    assert bench.submit(make_request(3, cached + [3] * 10)).error is None  # 90 + 10 of 506
    error = bench.submit(make_request(4, cached + [4])).error
    assert error.code == "saturated" and "100" in error.message
    bench.drain()
    assert bench.submit(make_request(5, [5] * 900)).error is None, "an empty queue takes anything"
    bench.drain()


@pytest.mark.parametrize("k", [1, 3])
def test_speculation_brings_several_tokens_and_rejected_ones_leave_no_trace(k: int) -> None:
    turns = iter(range(10_000))
    bench = Bench(depth=1, num_speculative_tokens=k, accept=lambda drafts: next(turns) % (drafts + 1))
    prompt = [7] * 30
    bench.submit(make_request(1, prompt, 50))
    bench.drain()
    assert bench.tokens[1] == expected_output(prompt, 50)
    assert len(bench.plans) < 50
    history = prompt + bench.tokens[1]
    bench.submit(make_request(2, [*history, 1, 2, 3], 10))
    bench.drain()
    assert bench.tokens[2] == expected_output([*history, 1, 2, 3], 10)
    assert bench.cached[2] >= len(history) - 1 - 16
