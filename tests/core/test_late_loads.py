"""Loads nobody answers in time: who stops waiting, when the core wants to be woken, and what is counted once."""

from __future__ import annotations

import pytest

from samovar.core.admission import LEAST_LOAD_DEADLINE_S
from samovar.core.plan import TransferDone
from samovar.policy.hints import Hint
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output
from tests.core.test_tiers import QuietOrder, answers, crowded_out, keeping, prompt, run


def hanging_prefetch(depth: int = 2) -> Bench:
    """Session s has six blocks that a tier was asked for and does not bring."""
    bench = crowded_out(depth=depth)
    answers(bench, Hint("prefetch"))
    assert bench.plan().loads
    bench.apply(land=False)
    return bench


@pytest.mark.parametrize("depth", [1, 2])
def test_a_turn_does_not_wait_for_a_prefetch_that_hangs(depth: int) -> None:
    bench = hanging_prefetch(depth)
    asked_s = bench.now
    bench.submit(make_request(3, prompt(1, 100), 2, session_id="s"))
    for _ in range(3):
        bench.step(land=False)
    assert not bench.tokens[3]
    bench.now = bench.engine.wake_at
    assert bench.now - asked_s <= LEAST_LOAD_DEADLINE_S
    for _ in range(20):
        bench.step(land=False)
    assert bench.tokens[3] == expected_output(prompt(1, 100), 2)
    assert bench.misses[3].reason == "failed_load"
    assert sum(len(plan.loads) for plan in bench.plans) == 1, "the tier that hangs is not asked for the same again"
    bench.engine.check()


def test_what_is_late_is_counted_once() -> None:
    bench = hanging_prefetch()
    bench.now = bench.engine.wake_at
    bench.plan()
    stats = bench.engine.stats()
    assert (stats.failed_load_blocks, stats.failed_load_reasons) == (6, {"late": 6})
    (transfer_id,) = bench.engine._board.transfers
    bench.engine.transferred([TransferDone(transfer_id, (2, 3, 4, 5), "late")], bench.now)
    stats = bench.engine.stats()
    assert (stats.failed_load_blocks, stats.failed_load_reasons) == (6, {"late": 6})
    assert (stats.loaded_blocks, stats.prefetched_blocks) == (2, 2), "and what came is counted when it came"
    bench.drain()


def test_what_a_prefetch_failed_to_bring_is_not_prefetched() -> None:
    bench = hanging_prefetch()
    assert bench.engine.stats().prefetched_blocks == 0
    bench.land(bad=(4, 5))
    stats = bench.engine.stats()
    assert (stats.prefetched_blocks, stats.loaded_blocks, stats.failed_load_blocks) == (4, 4, 2)


def test_a_time_that_is_over_does_not_hide_a_later_one() -> None:
    """Of a tier that wants something moved and is not asked again before something happens."""
    bench, tier = keeping(policy=QuietOrder())
    run(bench, 1, prompt(1, 40), session_id="s")
    answers(bench, Hint("resume_in", 60.0))
    bench.plan()
    tier.wake_at = bench.now - 5.0
    assert bench.engine.wake_at > bench.now + 50.0
    tier.wake_at = bench.now
    assert bench.engine.wake_at > bench.now + 50.0, "the plan of this moment has asked it"
    tier.wake_at = bench.now + 5.0
    assert bench.engine.wake_at == bench.now + 5.0


def test_an_overdue_answer_does_not_hide_a_later_time() -> None:
    bench = hanging_prefetch()
    deadline_s = bench.engine.wake_at
    answers(bench, Hint("resume_in", 600.0))
    bench.now = deadline_s
    bench.plan()
    assert bench.engine.wake_at > deadline_s + 500.0


# -- room -----------------------------------------------------------------------------------------------------------


def test_a_prefetch_leaves_the_room_that_a_loading_request_needs() -> None:
    """32 blocks: the request has 6 to load and 20 to compute, the session that is to be brought up has 20."""
    bench, _ = keeping(num_blocks=32, policy=QuietOrder())
    run(bench, 1, prompt(1, 100), 1)
    run(bench, 2, prompt(2, 16 * 20 + 1), 1, session_id="s")
    run(bench, 3, prompt(3, 510), 1)
    bench.submit(make_request(4, prompt(1, 96) + prompt(4, 310), 1))
    plan = bench.plan()
    assert [len(load.keys) for load in plan.loads] == [6] and not len(bench.engine._board.queues)
    answers(bench, Hint("prefetch"))
    bench.apply(land=False)
    plan = bench.plan()
    assert plan is None or sum(len(load.keys) for load in plan.loads) <= 6
    bench.drain()
    assert bench.tokens[4] == expected_output(prompt(1, 96) + prompt(4, 310), 1)


def test_who_has_no_room_does_not_ask_the_tiers() -> None:
    bench, tier = keeping(num_blocks=32)
    run(bench, 1, prompt(1, 300), 1)
    run(bench, 2, prompt(2, 510), 1)
    bench.submit(make_request(3, prompt(3, 400), 40))
    bench.step()
    asked: list[int] = []
    find = tier.lookup
    tier.lookup = lambda keys, now: asked.append(len(keys)) or find(keys, now)
    bench.submit(make_request(4, prompt(1, 300), 2))
    for _ in range(5):
        bench.step()
    assert asked == [] and not bench.tokens[4]
    bench.drain()
    assert len(asked) == 1 and bench.cached[4] == 288


# -- failed steps ------------------------------------------------------------------------------------


def test_a_failed_step_takes_what_was_prefetched_onto_its_blocks() -> None:
    bench, tier = keeping(num_blocks=32, policy=QuietOrder(), depth=1)
    run(bench, 1, prompt(1, 100), session_id="s")
    run(bench, 2, prompt(2, 510), 1)
    first, held = make_request(0, prompt(1, 48)).keys[:16], tier.held
    tier.held = lambda keys: 0 if keys[0] == first else held(keys)  # the head is to be computed
    bench.submit(make_request(3, prompt(1, 48), 1))
    answers(bench, Hint("prefetch"))
    plan = bench.plan()
    assert plan.chunks and [len(load.keys) for load in plan.loads] == [3]
    result = bench.runner.run(fail=True)
    bench.engine.transferred(bench.runner.land(), bench.now)
    assert len(bench.engine._board.unproven) == 3
    bench.engine.apply(result.step, result, bench.now)
    bench.engine.check()
    assert not bench.engine._board.unproven and bench.engine.stats().wasted_load_blocks == 3
    bench.drain()
