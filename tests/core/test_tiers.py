"""Loads and stores as the core plans them: load or compute, late loads, prefetches, hints, and what is counted."""

from __future__ import annotations

import pytest

from samovar.core import cache_report
from samovar.core.admission import LEAST_LOAD_DEADLINE_S, PROBE_DEADLINE_S
from samovar.core.cache_report import Dormant, Recovered
from samovar.core.gate import PrefillRate, blocks_to_load, load_s, with_probe
from samovar.core.plan import TransferDone
from samovar.core.ports import TierMatch, TierShare
from samovar.policy.hints import Hint
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output
from tests.core.tiers import EmptyTier, KeepingTier, QuietPolicy


def prompt(seed: int, length: int) -> list[int]:
    return [(seed * 31 + i * 7 + i // 13) % 50 for i in range(length)]


def keeping(seconds: float = 0.1, **config) -> tuple[Bench, KeepingTier]:
    tier = KeepingTier(seconds)
    bench = Bench(connector=tier, **config)
    tier.contents = bench.runner.tier
    return bench, tier


def run(bench: Bench, id: int, tokens: list[int], out: int = 2, **fields) -> None:
    bench.submit(make_request(id, tokens, out, **fields))
    bench.drain()
    assert bench.tokens[id] == expected_output(tokens, out)


# -- load or compute ------------------------------------------------------------------------------------------------


def test_the_gate() -> None:
    """40 KB a token, 8,000 tokens/s: 320 MB/s is where loading begins to pay."""
    num_bytes = 4000 * 40_000
    assert blocks_to_load((TierShare("host", 250, num_bytes / 500e6),), 16, 8000.0) == 250
    assert blocks_to_load((TierShare("host", 250, num_bytes / 200e6),), 16, 8000.0) == 0
    assert blocks_to_load((TierShare("host", 250, 1e9),), 16, 0.0) == 250, "nothing is known of computing it"


def test_a_slow_tier_behind_a_fast_one_is_left_alone() -> None:
    host, disk = TierShare("host", 10, 0.01), TierShare("disk", 10, 5.0)
    assert blocks_to_load((host, disk), 16, 1000.0) == 10
    assert blocks_to_load((host, disk), 16, 1.0) == 20
    assert blocks_to_load((disk, host), 16, 1000.0) == 0
    assert blocks_to_load((disk, TierShare("host", 1000, 0.01)), 16, 1000.0) == 1010, "what follows pays for it"
    assert blocks_to_load((), 16, 1000.0) == 0


def test_what_a_step_says_of_the_prefill_rate() -> None:
    rate = PrefillRate()
    rate.step(8, 0, 1.0)
    rate.step(100, 50, 1.0)
    assert rate.tokens_per_s == 0.0, "a few tokens, or decodes mostly, say nothing"
    for _ in range(100):
        rate.step(1000, 1, 0.5)
    assert rate.tokens_per_s == pytest.approx(2000.0)
    for _ in range(100):
        rate.step(1000, 1, 2.0)
    assert rate.tokens_per_s == pytest.approx(500.0, rel=0.01), "it follows"


def test_what_is_sooner_computed_is_not_loaded() -> None:
    bench, tier = keeping(num_blocks=16)
    run(bench, 1, prompt(1, 100))
    run(bench, 2, prompt(2, 250))  # pushes 1 out
    tier.seconds = 1e6
    run(bench, 3, prompt(1, 100))
    stats = bench.engine.stats()
    assert (stats.loaded_blocks, stats.declined_load_blocks, bench.cached[3]) == (0, 6, 0)
    tier.seconds = 0.1
    run(bench, 4, prompt(2, 250))
    assert bench.engine.stats().loaded_blocks > 0


# -- loads that fail or never end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_a_load_that_never_ends_is_not_waited_for(depth: int) -> None:
    """Its blocks come back when it is reported after all; nobody else waits for its keys meanwhile."""
    bench, _ = keeping(num_blocks=32, depth=depth)
    run(bench, 1, prompt(1, 100))
    run(bench, 2, prompt(2, 500))
    bench.submit(make_request(3, prompt(1, 100), 2))
    plan = bench.plan()
    assert plan.loads and bench.engine.wake_at is not None
    bench.apply(land=False)
    bench.now = bench.engine.wake_at
    assert bench.now >= LEAST_LOAD_DEADLINE_S
    bench.submit(make_request(4, prompt(1, 60), 2))
    for _ in range(20):
        bench.step(land=False)
    assert bench.tokens[3] == expected_output(prompt(1, 100), 2)
    assert bench.tokens[4] == expected_output(prompt(1, 60), 2)
    assert bench.misses[3].reason == "failed_load"
    bench.engine.check()
    stats = bench.engine.stats()
    assert stats.failed_load_reasons == {"late": 6}
    assert stats.num_free_blocks + stats.num_cached_blocks <= stats.num_blocks - len(plan.loads[0].blocks)
    bench.land()
    bench.drain()
    stats = bench.engine.stats()
    assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks


def test_a_failed_load_is_looked_up_once_and_computed() -> None:
    bench, tier = keeping(num_blocks=16)
    run(bench, 1, prompt(1, 100))
    run(bench, 2, prompt(2, 250))
    bench.submit(make_request(3, prompt(1, 100), 2))
    bench.plan()
    bench.apply(land=False)
    bench.land(bad=(2,))
    calls: list[int] = []
    tier.lookup = lambda keys, now: calls.append(1) or TierMatch()
    bench.drain()
    assert bench.tokens[3] == expected_output(prompt(1, 100), 2)
    assert (bench.cached[3], bench.misses[3].reason, calls) == (32, "failed_load", [])
    assert bench.engine.stats().failed_load_reasons == {"unknown": 1}


def test_a_hundred_aborts_during_loads_leak_nothing() -> None:
    bench, _ = keeping(num_blocks=64)
    run(bench, 1, prompt(1, 300))
    run(bench, 2, prompt(2, 900))
    free = bench.engine.stats().num_free_blocks + bench.engine.stats().num_cached_blocks
    for id in range(10, 110):
        bench.submit(make_request(id, prompt(1, 300), 2))
        bench.plan()
        if bench.runner.queue:
            bench.apply(land=id % 2 == 0)
        bench.engine.finish(id, 0, bench.now)
        bench.engine.check()
    bench.land()
    bench.drain()
    stats = bench.engine.stats()
    assert stats.num_free_blocks + stats.num_cached_blocks == free == 64


def test_what_a_client_that_went_away_had_loaded_stays() -> None:
    bench, _ = keeping(num_blocks=64)
    run(bench, 1, prompt(1, 300))
    run(bench, 2, prompt(2, 900))
    bench.submit(make_request(3, prompt(1, 300), 2))
    bench.plan()
    bench.apply(land=False)
    bench.engine.finish(3, 0, bench.now)
    bench.land()
    run(bench, 4, prompt(1, 300))
    assert bench.cached[4] == 288
    stats = bench.engine.stats()
    assert stats.cached_tokens_by_tier["device"] >= 288 and stats.wasted_load_blocks == 0


def test_loads_do_not_lock_the_queue() -> None:
    """Pool 27: L loaded 25 and needs 1, H at the head needs 10, W needs 1, 2 are free: L and W run in the next step."""
    bench, _ = keeping(num_blocks=27, depth=1, block_tokens=16)
    long = prompt(1, 16 * 25 + 8)
    run(bench, 1, long, 1)
    run(bench, 2, prompt(2, 16 * 26), 1)
    bench.submit(make_request(3, long, 1))
    bench.plan()
    bench.apply(land=True)
    bench.submit(make_request(4, prompt(4, 16 * 9 + 8), 1), make_request(5, prompt(5, 8), 1))
    plan = bench.plan()
    assert {chunk.request_id for chunk in plan.chunks} == {3, 5}
    bench.drain()
    for id, tokens in ((3, long), (4, prompt(4, 16 * 9 + 8)), (5, prompt(5, 8))):
        assert bench.tokens[id] == expected_output(tokens, 1)


# -- conversations --------------------------------------------------------------------------------------------------


class Favourites(QuietPolicy):
    """What is superseded first, then the least recently used."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def value(self, leaf: Leaf, now: float) -> float:
        return -1.0 if leaf.superseded else leaf.last_used_s

    def turn_started(self, turn, now: float) -> None:
        self.heard.append(("start", turn.stream.strip("\0"), turn.parent.strip("\0"), turn.num_hit_blocks))

    def turn_ended(self, turn, now: float) -> None:
        self.heard.append(("end", turn.stream.strip("\0"), turn.num_blocks, turn.reason))

    def outcome(self, stream: str, reason: str, tools, now: float) -> None:
        self.heard.append(("outcome", stream.strip("\0"), reason, tools))


def test_a_policy_hears_of_turns() -> None:
    policy = Favourites()
    bench = Bench(policy=policy)
    run(bench, 1, prompt(1, 40), 4, session_id="s")
    bench.engine.outcome(1, "tool_calls", ("shell",), bench.now)
    run(bench, 2, prompt(1, 40) + expected_output(prompt(1, 40), 4) + [1] * 20, 4, session_id="s")
    run(bench, 3, prompt(3, 20), 4, session_id="child", parent_session_id="s")
    bench.engine.outcome(99, "stop", (), bench.now)
    assert policy.heard == [
        ("start", "s", "", 0),
        ("end", "s", 2, "length"),
        ("outcome", "s", "tool_calls", ("shell",)),
        ("start", "s", "", 2),
        ("end", "s", 4, "length"),
        ("start", "child", "s", 0),
        ("end", "child", 1, "length"),
    ]


def test_what_a_compaction_cut_off_goes_first() -> None:
    """6 blocks, the new prompt shares 2: the 4 orphans are the next victims, before a session that is older. That it
    is one is known by its second turn."""
    bench = Bench(policy=Favourites(), num_blocks=20)
    run(bench, 1, prompt(9, 16 * 5 + 1), 1, session_id="older")
    run(bench, 2, prompt(1, 16 * 6 + 1), 1, session_id="s")
    run(bench, 3, prompt(1, 32) + prompt(5, 17), 1, session_id="s")
    run(bench, 4, prompt(1, 32) + prompt(5, 33), 1, session_id="s")
    run(bench, 5, prompt(7, 16 * 10), 1)
    for id, tokens, cached in ((6, prompt(9, 16 * 5 + 1), 80), (7, prompt(1, 32) + prompt(5, 33), 64)):
        bench.submit(make_request(id, tokens, 1))
        bench.drain()
        assert bench.cached[id] == cached


# -- hints ----------------------------------------------------------------------------------------------------------


def answers(bench: Bench, *hints: Hint, session: str = "s", tenant: str = "") -> list[tuple[str, str]]:
    return [(a.kind, a.status) for a in bench.engine.hint(tenant, session, hints, bench.now)]


def test_hints_are_answered_one_by_one() -> None:
    bench = Bench(policy=QuietOrder())
    run(bench, 1, prompt(1, 40), session_id="s")
    assert answers(bench, Hint("retain", 30.0), Hint("retain", 1e9), Hint("prefetch"), Hint("release")) == [
        ("retain", "applied"),
        ("retain", "clipped"),
        ("prefetch", "ignored"),
        ("release", "applied"),
    ]
    assert answers(bench, Hint("retain", 1.0), session="other") == [("retain", "ignored")]
    assert answers(bench, Hint("retain", 1.0), tenant="other") == [("retain", "ignored")], "another tenant's session"
    assert bench.engine.stats().hints == {
        "retain:applied": 1,
        "retain:clipped": 1,
        "retain:ignored": 2,
        "prefetch:ignored": 1,
        "release:applied": 1,
    }
    lru = Bench(policy=LRU())
    run(lru, 1, prompt(1, 40), session_id="s")
    assert answers(lru, Hint("retain", 30.0)) == [("retain", "ignored")]


class QuietOrder(QuietPolicy):
    def value(self, leaf: Leaf, now: float) -> float:
        return leaf.last_used_s


def test_a_requests_hints_are_acknowledged_with_its_verdict() -> None:
    bench = Bench(policy=QuietOrder())
    hints = (Hint("retain", 1e9), Hint("demote"), Hint("children", count=3))
    verdict = bench.submit(make_request(1, prompt(1, 40), session_id="s", hints=hints))
    assert [(a.kind, a.status) for a in verdict.hints] == [
        ("retain", "clipped"),
        ("demote", "ignored"),
        ("children", "applied"),
    ]
    assert bench.engine.stats().hints == {}, "they count when the request has ended"
    bench.drain()
    assert bench.engine.stats().hints == {"retain:clipped": 1, "demote:ignored": 1, "children:applied": 1}


def test_a_tenant_cannot_retain_everything() -> None:
    bench = Bench(policy=QuietOrder(), num_blocks=20)
    for id in range(4):
        run(bench, id, prompt(id, 16 * 4 + 1), 1, session_id=str(id))
        assert answers(bench, Hint("retain", 1e4), session=str(id)) == [("retain", "applied")]
    run(bench, 4, prompt(4, 16 * 2 + 1), 1, session_id="4", tenant="other")
    assert answers(bench, Hint("retain", 1e4), session="4", tenant="other") == [("retain", "applied")]
    run(bench, 5, prompt(5, 16 * 2), 1, session_id="5")
    told = bench.engine.hint("", "5", (Hint("retain", 1e4),), bench.now)[0]
    assert told.status == "ignored" and "the budget is 16" in told.reason


def test_a_released_session_goes_first() -> None:
    bench = Bench(policy=Favourites(), num_blocks=16)
    run(bench, 1, prompt(1, 16 * 5 + 1), 1, session_id="old")
    run(bench, 2, prompt(2, 16 * 5 + 1), 1, session_id="new")
    answers(bench, Hint("release"), session="new")
    run(bench, 3, prompt(3, 16 * 9), 1)
    run(bench, 4, prompt(1, 16 * 5 + 1), 1, session_id="old")
    assert bench.cached[4] == 80


def test_the_end_of_a_session_is_the_end_of_its_sub_agents() -> None:
    bench = Bench(policy=Favourites(), num_blocks=24)
    run(bench, 1, prompt(1, 16 * 5 + 1), 1, session_id="other")
    run(bench, 2, prompt(2, 16 * 5 + 1), 1, session_id="s")
    run(bench, 3, prompt(3, 16 * 3 + 1), 1, session_id="s/a", parent_session_id="s")
    run(bench, 4, prompt(4, 16 * 3 + 1), 1, session_id="s/b", parent_session_id="s/a")
    answers(bench, Hint("release"))
    assert {s.session_id for s in bench.engine.cache_report(bench.now).sessions if s.why == "released"} == {
        "s",
        "s/a",
        "s/b",
    }
    run(bench, 5, prompt(5, 16 * 16 + 1), 1)
    run(bench, 6, prompt(1, 16 * 5 + 1), 1, session_id="other")
    assert bench.cached[6] == 80


# -- prefetch -------------------------------------------------------------------------------------------------------


def crowded_out(**config) -> Bench:
    """Session s has 6 blocks in the tier and none on the device."""
    bench, _ = keeping(num_blocks=32, policy=QuietOrder(), **config)
    run(bench, 1, prompt(1, 100), session_id="s")
    run(bench, 2, prompt(2, 510), 1)
    assert bench.engine.cache_report(bench.now).sessions[-1].tiers["device"] == 0
    return bench


def test_a_prefetch_brings_a_session_up_before_its_turn() -> None:
    bench = crowded_out()
    assert answers(bench, Hint("prefetch")) == [("prefetch", "applied")]
    while bench.engine.wake_at is not None or bench.runner.queue:
        bench.step()
    bench.engine.check()
    before = bench.engine.stats()
    assert before.prefetched_blocks == before.loaded_blocks == 6
    run(bench, 3, prompt(1, 100), session_id="s")
    after = bench.engine.stats()
    assert bench.cached[3] == 96 and after.loaded_blocks == 6
    assert after.wasted_load_blocks == 0


def test_resume_in_prefetches_shortly_before() -> None:
    bench = crowded_out()
    answers(bench, Hint("resume_in", 60.0))
    due = bench.engine.wake_at
    assert bench.now + 55.0 < due < bench.now + 60.0
    assert bench.plan() is None or not bench.plans[-1].loads
    bench.now = due
    assert bench.plan().loads
    bench.drain()


def test_a_prefetch_that_nobody_used_is_counted() -> None:
    bench = crowded_out()
    answers(bench, Hint("prefetch"))
    for _ in range(5):
        bench.step()
    run(bench, 5, prompt(5, 510), 1)
    assert bench.engine.stats().wasted_load_blocks == 6


def test_a_request_that_comes_during_a_prefetch_waits_for_it() -> None:
    bench = crowded_out()
    answers(bench, Hint("prefetch"))
    bench.plan()
    bench.submit(make_request(3, prompt(1, 100), 2, session_id="s"))
    bench.apply(land=False)
    for _ in range(3):
        bench.step(land=False)
    assert not bench.tokens[3]
    bench.land()
    bench.drain()
    assert bench.cached[3] == 96 and bench.engine.stats().loaded_blocks == 6


def test_a_prefetch_never_takes_what_runs() -> None:
    bench = crowded_out()
    bench.submit(make_request(9, prompt(9, 480), 16))
    bench.plan()
    answers(bench, Hint("prefetch"))
    bench.drain()
    assert bench.tokens[9] == expected_output(prompt(9, 480), 16)
    assert bench.engine.stats().preemptions == 0


# -- what is seen ---------------------------------------------------------------------------------------------------


def test_the_ceiling_is_what_an_infinite_cache_would_have_found() -> None:
    bench = Bench(num_blocks=8)
    run(bench, 1, prompt(1, 100), 1)
    run(bench, 2, prompt(2, 120), 1)
    run(bench, 3, prompt(1, 100), 1)
    stats = bench.engine.stats()
    assert stats.ceiling_tokens == 96
    assert stats.prompt_tokens_cached < 96
    assert stats.regretted_tokens == stats.missed_tokens["evicted"] > 0


def test_what_was_saved_is_counted_once_a_prefill_was_measured() -> None:
    """Until then a load would only have cost time."""
    bench, _ = keeping(max_num_batched_tokens=16)
    tokens = prompt(1, 40)
    run(bench, 1, tokens)
    run(bench, 2, tokens)
    before = bench.engine.stats()
    assert bench.cached[2] > 0 and before.prefill_tokens_per_s == 0.0 and before.saved_s == 0.0
    bench.engine._board.prefill_rate.step(1000, 0, 10.0)
    run(bench, 3, tokens)
    stats = bench.engine.stats()
    assert stats.saved_s == pytest.approx((bench.cached[2] + bench.cached[3]) / stats.prefill_tokens_per_s, rel=0.2)


def test_sessions_are_reported_with_where_they_are() -> None:
    bench, _ = keeping(num_blocks=64)
    run(bench, 1, prompt(1, 100), session_id="a", tenant="t")
    run(bench, 2, prompt(2, 50), session_id="b", parent_session_id="a", tenant="t")
    bench.submit(make_request(3, prompt(3, 50), session_id="c"))
    bench.plan()
    report = bench.engine.cache_report(bench.now + 5.0)
    seen = {s.session_id: s for s in report.sessions}
    assert [s.session_id for s in report.sessions] == ["c", "b", "a"] and report.num_sessions == 3
    assert (seen["a"].tenant, seen["a"].num_tokens, seen["a"].tiers["device"]) == ("t", 96, 96)
    assert seen["b"].parent_session_id == "a" and seen["c"].running and seen["a"].idle_s >= 5.0
    assert report.tiers[0].tier == "device" and report.tiers[0].num_blocks == 64
    bench.drain()


def test_reports_of_the_tiers_own_moves_reach_them() -> None:
    tier, heard = EmptyTier(), []
    tier.transferred = lambda done, now: heard.append(done.transfer_id)
    bench = Bench(connector=tier)
    bench.engine.transferred([TransferDone(-3), TransferDone(77)], 1.0)
    assert heard == [-3]


# -- recomputing what was loaded ------------------------------------------------------------------------------------


def verified(rotten: bool) -> tuple[Bench, list[bytes]]:
    bench, tier = keeping(num_blocks=16, kv_verify=1)
    distrusted: list[bytes] = []
    tier.distrust = lambda keys, now: distrusted.extend(keys)
    run(bench, 1, prompt(1, 100))
    run(bench, 2, prompt(2, 250))
    if rotten:
        bench.runner.tier[make_request(0, prompt(1, 100)).keys[32:48]] = [b"rot"] * 16
    run(bench, 3, prompt(1, 100))
    bench.land()
    bench.engine.check()
    stats = bench.engine.stats()
    assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks
    return bench, distrusted


def test_a_load_is_computed_again_and_compared() -> None:
    bench, distrusted = verified(rotten=False)
    stats = bench.engine.stats()
    assert (stats.verified_blocks, stats.differing_blocks, distrusted) == (6, 0, [])
    assert bench.cached[3] == 0, "what is computed is not cached"


def test_a_request_that_ends_with_its_first_token_is_verified_too() -> None:
    bench, _ = keeping(num_blocks=16, kv_verify=1)
    run(bench, 1, prompt(1, 100), 1)
    run(bench, 2, prompt(2, 250), 1)
    run(bench, 3, prompt(1, 100), 1)
    stats = bench.engine.stats()
    assert (stats.verified_blocks, stats.differing_blocks) == (6, 0)
    assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks


def test_rot_that_no_checksum_sees_is_found_and_harms_nobody() -> None:
    bench, distrusted = verified(rotten=True)
    assert bench.engine.stats().differing_blocks == 1
    keys = make_request(0, prompt(1, 100)).keys
    assert distrusted == [keys[i * 16 : i * 16 + 16] for i in range(2, 6)]


def test_only_one_load_in_n_is_verified() -> None:
    bench, _ = keeping(num_blocks=32, kv_verify=3)
    for id in range(0, 24, 2):
        run(bench, id, prompt(1, 100))
        run(bench, id + 1, prompt(2, 500))
    stats = bench.engine.stats()
    assert 0 < stats.verified_blocks < stats.loaded_blocks / 2


def test_without_room_for_both_nothing_is_verified() -> None:
    bench, _ = keeping(num_blocks=16, kv_verify=1)
    for id in range(4):
        run(bench, id, prompt(id % 2, 250))
    assert bench.engine.stats().verified_blocks == 0 < bench.engine.stats().loaded_blocks


# -- trying a tier out ------------------------------------------------------------------------------------------------


def test_a_probe_is_taken_behind_what_is_worth_loading() -> None:
    host, disk = TierShare("host", 10, 0.01, 4), TierShare("disk", 10, 5.0, 3)
    assert with_probe((host, disk), 0) == 4 and with_probe((host, disk), 10) == 13
    assert with_probe((host, disk), 20) == 20 and with_probe((), 0) == 0
    assert with_probe((TierShare("host", 10, 0.01), disk), 0) == 0, "what lies behind it cannot come without it"
    assert load_s((host, disk), 20) == 5.01 and load_s((host, disk), 10) == 0.01
    assert load_s((host, disk), 13) == pytest.approx(0.01 + 1.5) and load_s((host, disk), 14) == 5.01


def test_a_probe_is_a_load_of_a_few_blocks_and_the_rest_is_computed() -> None:
    bench, tier = keeping(num_blocks=16)
    run(bench, 1, prompt(1, 100))
    run(bench, 2, prompt(2, 250))  # pushes 1 out
    tier.lookup = lambda keys, now: TierMatch((TierShare("host", tier.held(keys), 1e6, 2),))
    bench.submit(make_request(3, prompt(1, 100), 2))
    bench.plan()
    bench.apply()
    bench.drain()
    assert bench.tokens[3] == expected_output(prompt(1, 100), 2)
    stats = bench.engine.stats()
    assert (stats.loaded_blocks, stats.declined_load_blocks, bench.cached[3]) == (2, 4, 32)
    assert stats.cached_tokens_by_tier["host"] == 32


@pytest.mark.parametrize(
    ("seconds", "num_loaded", "deadline_s"),
    [(6.0, 2, PROBE_DEADLINE_S), (0.0, 6, LEAST_LOAD_DEADLINE_S)],
)
def test_a_probe_that_never_ends_is_given_up_soon(seconds: float, num_loaded: int, deadline_s: float) -> None:
    """The request could have computed it at once; not so what is worth loading."""
    bench, tier = keeping(num_blocks=16)
    run(bench, 1, prompt(1, 100))
    run(bench, 2, prompt(2, 250))
    tier.lookup = lambda keys, now: TierMatch((TierShare("host", tier.held(keys), seconds, 2),))
    bench.engine._board.prefill_rate.step(100_000, 0, 0.1)
    bench.submit(make_request(3, prompt(1, 100), 2))
    assert len(bench.plan().loads[0].keys) == num_loaded
    due_s = bench.now + deadline_s
    bench.apply(land=False)
    assert bench.engine.wake_at == due_s
    bench.now = bench.engine.wake_at
    for _ in range(20):
        bench.step(land=False)
    assert bench.tokens[3] == expected_output(prompt(1, 100), 2)
    bench.land()
    bench.drain()


# -- what a tier had at the start -------------------------------------------------------------------------------------


def test_a_conversation_that_a_tier_had_is_listed_until_it_goes_on() -> None:
    bench, tier = keeping(num_blocks=64)
    tier.blocks_of = lambda keys: {"host": tier.held(keys)}
    run(bench, 1, prompt(1, 100), session_id="now", tenant="t")
    bench.land()
    keys = make_request(0, prompt(1, 100)).keys
    both = [Recovered("t\0old", keys, bench.now), Recovered("u\0a\ud83d/b", keys[:32] + b"x" * 16, bench.now)]
    old = Dormant(both)
    report = bench.engine.cache_report(bench.now + 5.0, old)
    assert [(s.tenant, s.session_id, s.num_tokens) for s in report.sessions] == [
        ("t", "now", 96),
        ("t", "old", 96),
        ("u", "a\ud83d/b", 48),
    ]
    found, partly = report.sessions[1:]
    assert (found.tiers, partly.tiers) == ({"device": 96, "host": 96}, {"device": 32, "host": 32})
    assert found.idle_s == 5.0 and "no turn since" in found.why and found.return_in_s is None
    assert report.num_sessions == 3 and found.stream == "old"
    run(bench, 2, prompt(1, 100) + [1] * 20, session_id="old", tenant="t")
    old.went_on("t", "old")
    sessions = bench.engine.cache_report(bench.now, old).sessions
    assert (sessions[0].session_id, sessions[0].why, len(sessions)) == ("old", "", 3)
    assert sessions[0].stream == found.stream, "the same row"
    bench.engine._board.streams._forget(bench.engine._board.streams.get("t\0old"))
    assert [s.session_id for s in bench.engine.cache_report(bench.now, old).sessions] == ["now", "a\ud83d/b"]


def test_a_conversation_of_which_nothing_is_left_takes_no_place_and_does_not_come_back() -> None:
    bench, tier = keeping(num_blocks=64)
    tier.blocks_of = lambda keys: {"host": 0 if keys[0] == b"g" * 16 else 1}
    gone = [Recovered(f"\0gone {at}", b"g" * 16, 0.0) for at in range(cache_report.MAX_SESSIONS)]
    old = Dormant([*gone, Recovered("\0there", b"t" * 16, 0.0)])
    assert bench.engine.cache_report(bench.now, old).sessions == (), "no more are looked at than could be listed"
    tier.blocks_of = lambda keys: {"host": 1}
    report = bench.engine.cache_report(bench.now, old)
    assert [s.session_id for s in report.sessions] == ["there"] and report.num_sessions == len(old) == 1


def test_a_report_looks_at_no_more_conversations_than_it_lists() -> None:
    bench, tier = keeping(num_blocks=64)
    looked: list[bytes] = []
    tier.blocks_of = lambda keys: looked.append(keys[0]) or {"host": 1}
    old = Dormant(Recovered(f"{at % 7}\0{at}", b"%016d" % at, 0.0) for at in range(5000))
    report = bench.engine.cache_report(bench.now, old)
    assert [s.session_id for s in report.sessions] == [str(at) for at in range(1000)]
    assert len(looked) == 1000 and report.num_sessions == 5000


def test_what_a_tier_had_takes_no_place_from_those_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_report, "MAX_SESSIONS", 3)
    monkeypatch.setattr(cache_report, "MAX_ALL_SESSIONS", 4)
    bench, tier = keeping(num_blocks=64)
    tier.blocks_of = lambda keys: {"host": 1}
    for id in range(2):
        run(bench, id, prompt(id, 40), session_id=f"now {id}")
    old = Dormant(Recovered(f"{tenant}\0old {at}", b"k" * 16, 0.0) for at in range(5) for tenant in ("", "t"))
    report = bench.engine.cache_report(bench.now, old)
    assert [s.session_id for s in report.sessions] == ["now 1", "now 0", "old 0", "old 0"]
    assert report.num_sessions == 12
