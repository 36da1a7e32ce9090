"""Situations that a review of the core found to go wrong; each test states what should happen instead."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from samovar.base import errors
from samovar.base.keys import KEY_BYTES
from samovar.core.plan import TransferDone
from samovar.core.ports import TierMatch, TierShare
from samovar.core.streams import Streams
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output, extend_hash
from tests.core.test_tenant_queues import Load
from tests.core.tiers import EmptyTier

DEPTHS = pytest.mark.parametrize("depth", [1, 2])


def prompt(seed: int, length: int) -> list[int]:
    return [(seed * 31 + i * 7 + i // 13) % 50 for i in range(length)]


# -- tenants: the turn must move on when something other than the budget ran out ----------------------------------


def test_seats_go_round_between_tenants() -> None:
    """Short prompts never use up the budget, so what tenants compete for is `max_num_seqs`."""
    bench = Bench(num_blocks=256, max_num_seqs=2, depth=1)
    for i in range(40):
        bench.submit(make_request(i, prompt(i, 20), 4, tenant="x"))
    bench.step()
    bench.submit(make_request(99, prompt(99, 20), 4, tenant="y"))
    bench.drain()
    ahead = sum(bench.first_token_step[i] < bench.first_token_step[99] for i in range(40))
    assert ahead <= 4, "y waits for a seat or two, not for x's whole backlog"


@DEPTHS
def test_tokens_go_round_when_a_step_ends_with_a_scrap(depth: int) -> None:
    """One decode leaves 2047 tokens: x takes 2032 up to a block's edge, and 15 are too few for a chunk of y."""
    bench = Bench(num_blocks=8192, depth=depth, max_model_len=100_000)
    bench.submit(make_request(0, [1], 500, tenant="x"))
    bench.step()
    for i in range(1, 6):
        bench.submit(make_request(i, prompt(i, 20_000), 2, tenant="x"))
    bench.step()
    bench.submit(make_request(99, prompt(99, 1000), 2, tenant="y"))
    ahead = len(bench.plans)
    for _ in range(6):
        bench.step()
    assert bench.first_token_step.get(99, 1000) - ahead <= 2


def test_room_goes_round_between_tenants() -> None:
    """x's large request is never passed over by a later one in the same plan: y stands before it in every plan."""
    bench = Bench(num_blocks=32, depth=1)
    for i in range(4):
        bench.submit(make_request(i, prompt(i, 40), 10 + i, tenant="y"))
    bench.submit(make_request(99, prompt(99, 16 * 26), 2, tenant="x"))
    for i in range(100, 400):
        bench.submit(make_request(i, prompt(i, 40), 10 + i % 4, tenant="y"))
    bench.drain()
    ahead = sum(bench.first_token_step[i] < bench.first_token_step[99] for i in range(100, 400))
    assert ahead <= 64


def test_no_budget_is_left_while_somebody_could_use_it() -> None:
    """x goes on with what its last turn left over; y cannot run; the rest of the step must still be x's."""
    load = Load(2048)
    load.add("x", 1_000_000)
    load.blocked.add(load.add("y", 1000))
    given = [sum(taken for _, taken in load.step(2000)) for _ in range(10)]
    assert given == [2000] * 10


def test_the_turn_of_a_tenant_that_vanishes_passes_to_the_one_after_it() -> None:
    load = Load(64)
    for tenant, tokens in (("a", 640), ("b", 64), ("c", 640)):
        load.add(tenant, tokens)
    order = [load.tenants[id] for _ in range(3) for id, _ in load.step(64)]
    assert order == ["a", "b", "c"]


# -- what is stored ------------------------------------------------------------------------------------------------


def tier_is_right(bench: Bench, prompts: list[list[int]]) -> bool:
    """Whether each stored block holds what a request with one of these token lists computes under its key."""
    right: dict[bytes, list[bytes]] = {}
    for i, tokens in enumerate(prompts):
        hashes, value = [], b""
        for token in tokens:
            value = extend_hash(value, token)
            hashes.append(value)
        joined = make_request(i, tokens).keys
        for at in range(len(joined) // KEY_BYTES):
            right[joined[at * KEY_BYTES : (at + 1) * KEY_BYTES]] = hashes[at * 16 : (at + 1) * 16]
    return all(right[key] == slots for key, slots in bench.runner.tier.items())


def test_a_block_that_is_still_pending_is_not_stored() -> None:
    """A decode fills a block whose equal another request is computing in the plan behind. The table is redirected to
    that pending block and offered to the tier at once; then the plan behind fails."""
    bench = Bench(connector=EmptyTier(), depth=2)
    start = prompt(1, 30)
    history = start + expected_output(start, 8)
    bench.submit(make_request(1, start, 20))
    bench.plan()
    bench.plan()
    bench.apply()
    bench.plan()  # request 1 computes position 31, the last of its block 1
    bench.apply()
    bench.submit(make_request(2, history[:32] + [9] * 20, 4))
    bench.plan()  # request 2 computes an equal block 1
    bench.apply()
    bench.apply(fail=True)
    other = history[:32] + [9] * 20
    everything = [start + expected_output(start, 20), other + expected_output(other, 4)]
    while bench.engine.has_work:
        bench.step()
        assert tier_is_right(bench, everything), "bytes of a failed step went to the tier"


# -- transfers -----------------------------------------------------------------------------------------------------


class OneTier(EmptyTier):
    """Says that it holds `num_blocks` of whatever is asked for."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks

    def lookup(self, keys, now: float) -> TierMatch:
        return TierMatch((TierShare("test", min(self.num_blocks, len(keys)), 0.1),))


def test_a_report_of_positions_that_were_not_asked_for_harms_nobody() -> None:
    bench = Bench(connector=OneTier(2), depth=1)
    bench.submit(make_request(1, prompt(1, 50), 2))
    plan = bench.engine.plan(1.0)
    bench.engine.transferred([TransferDone(plan.loads[0].transfer_id, (7,))], 2.0)
    bench.engine.check()


class SlowTier(EmptyTier):
    """Needs time to look."""

    def lookup(self, keys, now: float) -> TierMatch:
        return TierMatch(asked=True, deadline_s=100.0)


def test_who_waits_for_a_tier_does_not_count_as_waiting_for_room() -> None:
    bench = Bench(connector=SlowTier(), depth=1)
    bench.submit(make_request(1, prompt(1, 50), 2))
    assert bench.plan() is None
    stats = bench.engine.stats()
    assert (stats.num_waiting_for_capacity, stats.num_waiting_deferred) == (0, 1)


def test_who_waits_for_the_cadence_does_not_count_as_waiting_for_room() -> None:
    bench = Bench(depth=1, prefill_schedule_interval=8)
    bench.submit(make_request(1, [1] * 20, 50))
    for _ in range(3):
        bench.step()
    bench.submit(make_request(2, prompt(2, 50), 2))
    bench.step()
    stats = bench.engine.stats()
    assert (stats.num_waiting, stats.num_waiting_for_capacity, stats.num_waiting_deferred) == (1, 0, 1)


# -- counts --------------------------------------------------------------------------------------------------------


def test_blocks_lost_with_a_failed_step_are_not_counted_as_cached() -> None:
    """The follower adopts what the leader computes; the step fails and ends the leader; the follower computes all."""
    bench = Bench(depth=2, max_num_batched_tokens=256, long_prefill_token_threshold=64, max_step_failures=1)
    leader, follower = [1] * 64 + [2] * 50, [1] * 64 + [3] * 50
    bench.submit(make_request(1, leader, 2), make_request(2, follower, 2))
    bench.plan()
    bench.plan()  # the follower starts from the four blocks of the plan before
    bench.apply(fail=True)
    bench.drain()
    assert bench.tokens[2] == expected_output(follower, 2)
    last_start = max(p.step for p in bench.plans for s in p.starts if s.request_id == 2)
    chunks = [c for p in bench.plans[last_start:] for c in p.chunks if c.request_id == 2 and c.start < 114]
    assert bench.cached[2] == 114 - sum(c.num_tokens for c in chunks)


# -- memory --------------------------------------------------------------------------------------------------------


def test_sessions_with_short_turns_are_forgotten_too() -> None:
    streams = Streams(max_bytes=1 << 14)
    for i in range(10_000):
        streams.ended(streams.join("tenant", str(i), "", []).stream, [], 0, float(i))
    assert len(streams) < 100


# -- preemption ----------------------------------------------------------------------------------------------------


def test_a_request_whose_last_token_is_in_flight_is_not_preempted() -> None:
    """Its blocks come free with the next result, for nothing; preempted it computes its whole prompt again."""
    bench = Bench(num_blocks=14, depth=2)
    bench.submit(make_request(1, prompt(1, 16 * 9), 40))  # a tenth block with its first token
    bench.submit(make_request(2, prompt(2, 16 * 3 - 1), 17))  # its last two tokens are sampled while 1 needs another
    bench.drain()
    assert bench.engine.stats().preemptions == 0
    assert bench.tokens[2] == expected_output(prompt(2, 16 * 3 - 1), 17)


# -- reasons -------------------------------------------------------------------------------------------------------


def test_a_cut_lies_at_or_after_the_hit() -> None:
    """The session's last turn parted from this prompt at block 1, but another session's blocks cover it up to 3: what
    is missing is new, not cut."""
    bench = Bench()
    head = [1] * 16
    bench.submit(make_request(1, head + [2] * 33, 1, session_id="a"))
    bench.submit(make_request(2, head + [3] * 33, 1, session_id="b"))
    bench.drain()
    bench.submit(make_request(3, head + [3] * 32 + [4] * 33, 1, session_id="a"))
    bench.drain()
    miss = bench.misses[3]
    assert (miss.reason, miss.block) == ("new", 3)


# -- holes in a tier -----------------------------------------------------------------------------------------------


def test_blocks_computed_for_a_request_that_left_meanwhile_are_offered_too() -> None:
    """They stay findable on the device, so nobody computes them again and a tier never gets them: what is stored after
    them can never be reached, since a tier is asked for consecutive blocks."""
    bench = Bench(connector=EmptyTier(), depth=2, max_num_batched_tokens=64)
    shared = prompt(1, 200)
    bench.submit(make_request(1, shared, 2))
    bench.plan()
    bench.engine.finish(1, 0, bench.now)
    bench.apply()
    bench.submit(make_request(2, shared, 2))
    bench.drain()
    keys = make_request(2, shared).keys
    stored = [keys[at : at + KEY_BYTES] in bench.runner.tier for at in range(0, len(keys), KEY_BYTES)]
    assert stored == [True] * 12


# -- errors --------------------------------------------------------------------------------------------------------


def test_errors_are_defined_in_one_place() -> None:
    """What `error_classes` knows must not depend on which modules happen to be imported."""
    source = Path(errors.__file__).parents[1]
    elsewhere = []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and path != Path(errors.__file__):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                elsewhere += [f"{path.name}: {node.name}"] * bool(bases & vars(errors).keys())
    assert elsewhere == []


# -- failed steps --------------------------------------------------------------------------------------------------


def test_a_failed_step_does_not_fail_newcomers_of_the_step_behind_it() -> None:
    """The runner has no token for a chunk that rests on a failed step, and answers () for it. The core has already
    rolled that request back and wants none; the others' tokens in the same result are good."""
    bench = Bench(depth=2)
    bench.submit(make_request(1, prompt(1, 30), 20))
    bench.plan()
    bench.submit(make_request(2, prompt(2, 30), 20))
    behind = bench.plan()
    assert [chunk.request_id for chunk in behind.chunks] == [1, 2]
    bench.apply(fail=True)
    result = bench.runner.run()
    answer = msgspec.structs.replace(result, tokens=((), *result.tokens[1:]))
    outputs = bench.engine.apply(behind.step, answer, bench.now + 1)
    assert [output.request_id for output in outputs] == [2]
    assert bench.engine.stats().failed_steps == 1


# -- one request's fault is its own --------------------------------------------------------------------------------


@DEPTHS
def test_a_chunk_that_cannot_be_sampled_ends_its_request_alone(depth: int) -> None:
    bench = Bench(depth=depth)
    bench.submit(make_request(1, prompt(1, 30), 20), make_request(2, prompt(2, 30), 20))
    bench.plan()
    if depth == 2:
        bench.plan()
    result = bench.runner.run()
    answer = msgspec.structs.replace(result, tokens=((), *result.tokens[1:]), failed=(0,))
    outputs = bench.engine.apply(result.step, answer, bench.now)
    assert [(o.request_id, o.error is not None) for o in outputs] == [(1, True), (2, False)]
    bench.tokens[2] += outputs[1].token_ids
    bench.drain()
    assert bench.tokens[2] == expected_output(prompt(2, 30), 20)
    assert bench.engine.stats().failed_steps == 0


def test_what_a_request_without_numbers_published_is_forgotten() -> None:
    """Its KV may be what has no numbers in it; a sibling that already builds on it starts over."""
    bench = Bench(depth=2, max_num_batched_tokens=256)
    head = prompt(1, 64)
    bench.submit(make_request(1, head + [1] * 9, 5), make_request(2, head + [2] * 9, 5))
    bench.plan()
    behind = bench.plan()
    assert {c.request_id: c.start for c in behind.chunks}[2] == 64, "the sibling builds on the first request's blocks"
    result = bench.runner.run()
    bench.engine.apply(result.step, msgspec.structs.replace(result, tokens=((),), failed=(0,)), bench.now)
    bench.engine.check()
    for key in [k for k in bench.runner.kv if bench.runner.kv[k]]:
        bench.runner.kv[key] = b"no number" if key[0] < 4 else bench.runner.kv[key]
    bench.drain()
    assert bench.tokens[2] == expected_output(head + [2] * 9, 5)


def test_failed_steps_long_ago_do_not_count() -> None:
    bench = Bench(depth=1)
    bench.submit(make_request(1, prompt(1, 30), 30))
    for _ in range(5):  # far more failures than a request may be part of in a row
        bench.plan()
        bench.apply(fail=True)
        for _ in range(3):
            bench.step()
    bench.drain()
    assert bench.tokens[1] == expected_output(prompt(1, 30), 30)


# -- priorities are a client's word --------------------------------------------------------------------------------


def test_priority_does_not_reach_across_tenants() -> None:
    """A greedy tenant calls all its requests most important; the other's small one is not what it pays with."""
    bench = Bench(num_blocks=40, depth=1)
    for i in range(3):
        bench.submit(make_request(i, prompt(i, 16 * 10), 60, tenant="greedy", priority=-(2**31)))
    bench.submit(make_request(9, prompt(9, 40), 60, tenant="modest", priority=5))
    bench.drain()
    assert bench.engine.stats().preemptions > 0
    assert sum(s.request_id == 9 for p in bench.plans for s in p.starts) == 1


# -- what a session was ---------------------------------------------------------------------------------------------


def test_a_turn_cancelled_in_the_queue_does_not_erase_the_session() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit(make_request(1, [1] * 32 + [2] * 33, 1, session_id="a"))
    bench.drain()
    bench.submit(make_request(2, [7] * 20, 4), make_request(3, [1] * 32 + [2] * 33, 1, session_id="a"))
    bench.step()
    bench.engine.finish(3, 0, bench.now)
    bench.drain()
    bench.submit(make_request(4, [1] * 32 + [3] * 33, 1, session_id="a"))
    bench.drain()
    assert (bench.misses[4].reason, bench.misses[4].block) == ("cut", 2)


# -- cost ------------------------------------------------------------------------------------------------------------


def test_waiting_requests_cost_no_walk_over_their_cached_head() -> None:
    """Counted, not timed: list and dictionary look-ups of the index per waiting request grow with the logarithm."""
    bench = Bench(num_blocks=2100, max_num_batched_tokens=8192, depth=1, max_model_len=30_000)
    head = prompt(1, 16 * 1024)
    bench.submit(make_request(1, head, 1))
    bench.drain()
    bench.submit(make_request(2, prompt(2, 16 * 1000), 500))  # takes the rest of the device
    bench.step()
    bench.step()
    for i in range(3, 13):
        bench.submit(make_request(i, head + prompt(i, 16 * 200), 2))
    index, pool = bench.engine._board.kv.index, bench.engine._board.kv.pool
    seen: list[int] = []

    class Counting(list):
        def __getitem__(self, at):
            seen.append(1)
            return super().__getitem__(at)

    index._parents, pool.refs = Counting(index._parents), Counting(pool.refs)
    bench.step()
    assert bench.engine.stats().num_waiting == 10
    assert 0 < len(seen) < 10 * 50
