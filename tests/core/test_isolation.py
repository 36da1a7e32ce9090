"""What tenants can do to each other: shares of the queue, sessions, look-ups; and what the same request costs twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError
from samovar.base.keys import root_key, split_keys
from samovar.core.config import EngineConfig
from samovar.core.pace import LONGEST_S, SHORTEST_S, Pace
from samovar.core.replay import Recorder, replay
from samovar.core.streams import Streams
from samovar.policy.lru import LRU
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output
from tests.core.tiers import KeepingTier

DEPTHS = pytest.mark.parametrize("depth", [1, 2])


# -- shares of the queue ------------------------------------------------------------------------------------------


def test_a_tenants_share_is_its_own() -> None:
    """x may queue two; its third is refused, y's are not, until the queue is full for everybody."""
    bench = Bench(max_num_seqs=1, max_num_queued_reqs=4, max_num_queued_reqs_per_tenant=2)
    ask = iter(range(100))

    def code(tenant: str) -> str | None:
        verdict = bench.submit(make_request(next(ask), [1] * 20, tenant=tenant))
        return None if verdict.error is None else verdict.error.code

    assert [code("x"), code("x"), code("x"), code("y"), code("y"), code("y")] == [
        None, None, "rate_limit_exceeded", None, None, "rate_limit_exceeded",
    ]  # fmt: skip
    assert code("z") == "saturated"
    bench.step()  # one of them runs
    assert code("z") is None and code("x") == "saturated"
    bench.drain()
    assert bench.engine.stats().requests_rejected == {"rate_limit_exceeded": 2, "saturated": 2}
    assert code("x") is None


def test_a_tenants_tokens_count_uncached_ones() -> None:
    bench = Bench(max_num_queued_tokens_per_tenant=100)
    bench.submit(make_request(1, [1] * 500, 1, tenant="x"))
    bench.drain()
    cached = [1] * 496
    assert bench.submit(make_request(2, [2] * 90, tenant="x")).error is None
    assert bench.submit(make_request(3, [*cached, *[3] * 10], tenant="x")).error is None
    refused = bench.submit(make_request(4, [*cached, 4], tenant="x")).error
    assert refused.code == "rate_limit_exceeded" and "100 uncached tokens of yours" in refused.message
    assert bench.submit(make_request(5, [5] * 100, tenant="y")).error is None
    bench.drain()
    assert bench.submit(make_request(6, [6] * 900, tenant="x")).error is None, "an empty queue takes anything"
    bench.drain()


@pytest.mark.parametrize("what", ["reqs", "tokens"])
def test_shares_that_cannot_be(what: str) -> None:
    name = f"max_num_queued_{what}"
    with pytest.raises(ConfigError, match="must not be negative"):
        EngineConfig(1024, **{f"{name}_per_tenant": -1})
    with pytest.raises(ConfigError, match=f"{name}_per_tenant 5 has no effect with {name} 4"):
        EngineConfig(1024, **{name: 4, f"{name}_per_tenant": 5})
    EngineConfig(1024, **{name: 4, f"{name}_per_tenant": 4})
    EngineConfig(1024, **{f"{name}_per_tenant": 5})


@given(gaps=st.lists(st.floats(0, 100), max_size=50), queued=st.integers(0, 5000), later=st.floats(0, 1000))
def test_the_advice_is_bounded(gaps: list[float], queued: int, later: float) -> None:
    pace, now = Pace(), 0.0
    for gap in gaps:
        now += gap
        pace.admitted(now)
    assert SHORTEST_S <= pace.wait_s(queued, now + later) <= LONGEST_S


def test_the_advice_follows_the_pace() -> None:
    pace = Pace()
    assert pace.wait_s(1000, 0.0) == 1.0, "nothing is known yet"
    for second in range(10):
        pace.admitted(float(second))
    assert pace.wait_s(8, 10.0) == 8.0
    assert pace.wait_s(8, 200.0) == 1.0, "that was long ago"
    bench = Bench(max_num_seqs=1, max_num_queued_reqs=6, depth=1)
    for id in range(6):
        bench.submit(make_request(id, [id] * 20, 3))
    for _ in range(8):
        bench.step()
    for id in range(6, 12):
        refused = bench.submit(make_request(id, [id] * 20, 3)).error
    # Time is the number of the call: each admission took six of them.
    assert refused.code == "saturated" and 20 <= refused.retry_after_s <= 30


# -- sessions and look-ups ----------------------------------------------------------------------------------------


def test_a_session_id_means_something_inside_its_tenant_only() -> None:
    """Two tenants call their sessions the same. Each is told of its own last turn, never of the other's."""
    bench = Bench(num_blocks=64)
    roots = {tenant: root_key(b"test", tenant.encode()) for tenant in "xy"}
    ids = iter(range(100))

    def turn(tenant: str, prompt: list[int]) -> str:
        id = next(ids)
        bench.submit(make_request(id, prompt, 1, root=roots[tenant], tenant=tenant, session_id="main"))
        bench.drain()
        return bench.misses[id].reason

    head = [1] * 32
    assert turn("x", [*head, *[2] * 33]) == "cold"
    assert turn("y", [*head, *[3] * 33]) == "cold", "x's turn in a session of that name is nothing to y"
    assert turn("y", [*head, *[4] * 65]) == "cut"
    assert turn("x", [*head, *[2] * 65]) == "new", "y's turns did not touch x's"
    assert turn("x", [*head, *[4] * 65]) == "cut", "what y sent is not there for x"


def found(bench: Bench, prompt: list[int], **fields: object) -> int:
    request = make_request(0, prompt, **fields)
    match = bench.engine.match(split_keys(request.keys), len(prompt), bench.now)
    assert match.tiers == {"device": match.num_cached_tokens}
    return match.num_cached_tokens


@DEPTHS
@settings(max_examples=30, deadline=None)
@given(
    prompts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 70), st.integers(0, 3)), min_size=1, max_size=6),
    steps=st.integers(0, 6),
)
def test_a_match_is_the_hit_and_changes_nothing(depth: int, prompts: list[tuple[int, int, int]], steps: int) -> None:
    """Asked at any moment about anything, the core goes on as if it had not been; and what it said of a prompt is what
    that prompt then finds."""
    built = [[head] * length + [tail] for head, length, tail in prompts]

    def run(*, asking: bool) -> tuple[object, list[object]]:
        log: list[object] = []
        bench = Bench(num_blocks=10, block_tokens=8, depth=depth, max_num_batched_tokens=16)
        bench.engine = Recorder(bench.config, LRU(), sink=log.append)
        for id, prompt in enumerate(built):
            bench.submit(make_request(id, prompt, 3, block_tokens=8))
            for _ in range(steps):
                if asking:
                    for other in built:
                        found(bench, other, block_tokens=8)
                bench.step()
        bench.drain()
        for id, prompt in enumerate(built, start=100):
            told = found(bench, prompt, block_tokens=8)
            bench.submit(make_request(id, prompt, 1, block_tokens=8))
            bench.drain()
            assert bench.cached[id] == told
        assert replay(bench.engine.header, log, LRU()) == len(bench.plans)
        return bench.engine.stats(), log

    assert run(asking=True) == run(asking=False)


def test_what_a_match_never_covers() -> None:
    bench = Bench(num_blocks=128)
    prompt = [i * 7 % 50 for i in range(1008)]
    assert found(bench, prompt) == 0
    bench.submit(make_request(1, prompt))
    bench.drain()
    assert [found(bench, prompt[:n]) for n in (1, 15, 16, 17, 1000, 1008)] == [0, 0, 0, 16, 992, 992]
    assert found(bench, prompt, root=b"x" * 16) == 0
    assert bench.engine.match([], 0, 0.0).num_cached_tokens == bench.engine.match([], 1000, 0.0).num_cached_tokens == 0
    off = Bench(enable_prefix_caching=False)
    off.submit(make_request(1, prompt))
    off.drain()
    assert found(off, prompt) == 0


# -- hits by tier -------------------------------------------------------------------------------------------------


def test_hits_by_tier_add_up() -> None:
    tier = KeepingTier()
    bench = Bench(num_blocks=16, connector=tier)
    tier.contents = bench.runner.tier
    first, other = [1] * 100, [2] * 240
    for id, prompt in enumerate([first, first, other, first, first]):
        bench.submit(make_request(id, prompt, 1))
        bench.drain()
    stats = bench.engine.stats()
    assert [bench.cached[id] for id in range(5)] == [0, 96, 0, 96, 96]
    assert stats.cached_tokens_by_tier == {
        "device": 96 * 3 - stats.loaded_blocks * 16,
        "host": stats.loaded_blocks * 16,
    }
    assert stats.loaded_blocks > 0
    assert sum(stats.cached_tokens_by_tier.values()) == stats.prompt_tokens_cached == stats.prefix_hits_tokens


def test_hits_rise_by_what_a_warm_call_finds() -> None:
    bench = Bench(num_blocks=128)
    prompt = [i * 7 % 50 for i in range(1000)]
    bench.submit(make_request(0, prompt))
    bench.drain()
    for id in range(1, 4):
        before = bench.engine.stats()
        bench.submit(make_request(id, prompt))
        bench.drain()
        after = bench.engine.stats()
        assert after.prefix_hits_tokens - before.prefix_hits_tokens == 992
        assert after.cached_tokens_by_tier["device"] - before.cached_tokens_by_tier["device"] == 992


# -- the same request again, while the first still computes -------------------------------------------------------

PROMPT = [i * 11 % 50 for i in range(500)]


@DEPTHS
@pytest.mark.parametrize("budget", [16, 50, 64])
@pytest.mark.parametrize("after", [1, 2, 5])
@pytest.mark.parametrize("gone", [False, True])
def test_a_retry_joins_the_prefill_that_runs(depth: int, budget: int, after: int, gone: bool) -> None:
    """The prompt is computed once: the twin adds what a hit never covers, at most a block."""
    bench = Bench(num_blocks=128, depth=depth, max_num_batched_tokens=budget)
    bench.submit(make_request(1, PROMPT, 4))
    for _ in range(after):
        bench.step()
    assert 0 < bench.runner.computed_tokens < len(PROMPT)
    bench.submit(make_request(2, PROMPT, 4))
    if gone:
        bench.engine.finish(1, 0, bench.now)
    bench.drain()
    assert bench.tokens[2] == expected_output(PROMPT, 4)
    assert gone or bench.tokens[1] == bench.tokens[2]
    generated = 3 * (1 if gone else 2)  # a token is computed to have the one after it
    assert bench.runner.computed_tokens - generated <= len(PROMPT) + bench.config.block_tokens
    assert bench.engine.stats().step_tokens == bench.runner.computed_tokens


@settings(max_examples=60, deadline=None)
@given(
    depth=st.sampled_from([1, 2]),
    budget=st.integers(8, 80),
    length=st.integers(40, 300),
    arrivals=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    leave=st.sets(st.integers(0, 4)),
)
def test_any_number_of_retries_compute_it_once(
    depth: int, budget: int, length: int, arrivals: list[int], leave: set[int]
) -> None:
    """A client that gives up and tries again, over and over, at any moment: each attempt costs a block at most, beside
    what was in flight when it was given up."""
    bench = Bench(num_blocks=128, depth=depth, max_num_batched_tokens=budget, block_tokens=8)
    prompt = [i * 13 % 50 for i in range(length)]
    for id, pause in enumerate([0, *arrivals]):
        for _ in range(pause):
            bench.step()
        if id - 1 in leave:
            bench.engine.finish(id - 1, 0, bench.now)
        bench.submit(make_request(id, prompt, 1, block_tokens=8))
    bench.drain()
    assert bench.tokens[len(arrivals)] == expected_output(prompt, 1)
    assert bench.runner.computed_tokens <= length + len(arrivals) * 8


def test_which_tools_begin_sub_agents_is_learned_of_each_tenant() -> None:
    """x's `task` begins sub-agents all the time. For y it never did, so what looks like one is a compaction."""
    streams = Streams()
    for _ in range(4):
        streams.spawners.of("x").returned(("task",), forked=True)
        streams.spawners.of("y").returned(("task",), forked=False)
    parents: dict[str, bool] = {}
    for tenant in "xyz":
        keys = split_keys(make_request(1, [7] * 96, root=root_key(b"test", tenant.encode())).keys)
        other = split_keys(make_request(1, [7] * 48 + [8] * 48, root=root_key(b"test", tenant.encode())).keys)
        first = streams.join(tenant, "s", "", keys).stream
        streams.ended(first, keys, len(keys), 1.0)
        first.awaits = ("task",)
        parents[tenant] = streams.join(tenant, "s", "", other).stream.parent == first.name
    assert parents == {"x": True, "y": False, "z": True}, "of z nothing is known: it may be one"
    streams.check()
