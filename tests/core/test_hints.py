"""What becomes of hints: on blocks still in use, within the share of a tenant, and until the next turn begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from samovar.core import timetable
from samovar.core.plan import Load, TransferDone
from samovar.core.stats import TierReport
from samovar.policy.agent import AgentPolicy
from samovar.policy.hints import Hint
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from samovar.policy.ttl import TTL
from tests.core.helpers import Bench, make_request
from tests.core.test_tiers import Favourites, QuietOrder, answers, crowded_out, keeping, prompt, run

FIVE = 16 * 5 + 1
"""Tokens of five blocks, with the one that is computed in any case."""


# -- giving up the device -------------------------------------------------------------------------------------------


@pytest.fixture(params=[LRU, TTL, Favourites], ids=["lru", "ttl", "favourites"])
def policy(request) -> RetentionPolicy:
    return request.param()


def went_first(bench: Bench) -> bool:
    """Sessions "old" and "new" have five blocks each on a device of 16 that needs nine more: whether the newer went."""
    run(bench, 90, prompt(9, 16 * 9), 1)
    run(bench, 91, prompt(1, FIVE), 1, session_id="old")
    return bench.cached[91] == 80


@pytest.mark.parametrize("kind", ["release", "demote"])
@pytest.mark.parametrize("depth", [1, 2])
def test_what_a_request_gives_up_goes_first(kind, depth: int, policy: RetentionPolicy) -> None:
    """Its hints count from its end, when its blocks are still its own."""
    bench, _ = keeping(num_blocks=16, depth=depth, policy=policy)
    bench.engine._board.connector.held = lambda keys: 0
    run(bench, 1, prompt(1, FIVE), 1, session_id="old")
    run(bench, 2, prompt(2, FIVE), 1, session_id="new", hints=(Hint(kind),))
    assert went_first(bench)


@pytest.mark.parametrize("kind", ["release", "demote"])
def test_what_is_given_up_while_a_turn_runs_goes_first(kind, policy: RetentionPolicy) -> None:
    bench, _ = keeping(num_blocks=16, policy=policy)
    bench.engine._board.connector.held = lambda keys: 0
    run(bench, 1, prompt(1, FIVE), 1, session_id="old")
    bench.submit(make_request(2, prompt(2, 16 * 3), 16 * 2 + 1, session_id="new"))
    bench.step()
    assert answers(bench, Hint(kind), session="new") == [(kind, "applied")]
    bench.drain()
    assert went_first(bench)


def test_what_is_given_up_during_a_store_goes_first_once_it_has_ended() -> None:
    bench, _ = keeping(num_blocks=16, policy=Favourites())
    bench.engine._board.connector.held = lambda keys: 0
    run(bench, 1, prompt(1, FIVE), 1, session_id="old")
    bench.submit(make_request(2, prompt(2, FIVE), 1, session_id="new"))
    while 2 not in bench.finished:
        bench.step(land=False)
    bench.step(land=False)
    assert bench.engine._board.transfers, "its blocks are being stored"
    answers(bench, Hint("demote"), session="new")
    bench.land()
    bench.drain()
    assert went_first(bench)


def test_the_next_turn_makes_a_demotion_void() -> None:
    """The demoted table is still being stored when the next turn uses the same blocks, and ends."""
    bench, _ = keeping(num_blocks=16, policy=Favourites())
    bench.engine._board.connector.held = lambda keys: 0
    run(bench, 1, prompt(1, FIVE), 1, session_id="old")
    for id in (2, 3):
        bench.submit(make_request(id, prompt(2, FIVE), 1, session_id="new", hints=(Hint("demote"),) * (id == 2)))
        while id not in bench.finished:
            bench.step(land=False)
    bench.step(land=False)
    for transfer_id in reversed(list(bench.engine._board.transfers)):
        bench.engine.transferred([TransferDone(transfer_id)], bench.now)
    bench.drain()
    assert not went_first(bench), "the older one went: it is the least recently used"


def test_what_others_use_too_is_not_given_up() -> None:
    bench = Bench(policy=Favourites(), num_blocks=16)
    run(bench, 1, prompt(1, 16 * 4 + 1), 1, session_id="a")
    bench.submit(make_request(2, prompt(1, 16 * 4) + prompt(2, 17), 20, session_id="b"))
    bench.step()
    answers(bench, Hint("release"), session="a")
    bench.drain()
    run(bench, 3, prompt(3, 16 * 8), 1)
    run(bench, 4, prompt(1, 16 * 4) + prompt(2, 17), 1, session_id="b")
    assert bench.cached[4] == 80


# -- shares of a tenant ---------------------------------------------------------------------------------------------


def test_the_budget_is_of_the_largest_tier_and_asked_for_once() -> None:
    """What is on the device is in host memory, too: their sizes do not add up."""
    bench, tier = keeping(num_blocks=20, policy=QuietOrder())
    asked: list[int] = []
    tier.report = lambda: asked.append(1) or (TierReport("host", num_blocks=10), TierReport("disk", num_blocks=15))
    for id in range(4):
        run(bench, id, prompt(id, 16 * 5 + 1), 1, session_id=str(id))
    told = [bench.engine.hint("", str(id), (Hint("retain", 1e4),), bench.now)[0] for id in range(4)]
    assert [answer.status for answer in told] == ["applied"] * 3 + ["ignored"]
    assert "15 blocks of yours are retained and this session has 5, the budget is 16" in told[3].reason
    assert len(asked) == 1


def test_a_request_hears_at_once_that_the_budget_is_spent() -> None:
    bench = Bench(policy=QuietOrder(), num_blocks=20)
    for id in range(3):
        run(bench, id, prompt(id, FIVE), 1, session_id=str(id), hints=(Hint("retain", 1e4),))
    again = bench.submit(make_request(10, prompt(0, FIVE) + [1] * 15, 1, session_id="0", hints=(Hint("retain", 1e4),)))
    assert [a.status for a in again.hints] == ["applied"], "its own blocks are not counted twice"
    bench.drain()
    verdict = bench.submit(make_request(11, prompt(11, FIVE), 1, session_id="11", hints=(Hint("retain", 1e4),)))
    assert [(a.status, "the budget is 16" in a.reason) for a in verdict.hints] == [("ignored", True)]
    bench.drain()
    assert bench.engine.stats().hints == {"retain:applied": 4, "retain:ignored": 1}


@pytest.mark.parametrize("kind", ["prefetch", "resume_in"])
def test_one_tenants_flood_of_times_is_its_own_affair(kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "MOST_PER_TENANT", 3)
    bench, _ = keeping(policy=QuietOrder())
    for id in range(5):
        run(bench, id, prompt(id, 40), 1, session_id=str(id), tenant="many" if id < 4 else "few")
    flood = [answers(bench, Hint("resume_in", 86_400.0), session=str(i), tenant="many")[0][1] for i in range(4)]
    assert flood == ["applied"] * 3 + ["ignored"]
    assert answers(bench, Hint(kind, 60.0), session="4", tenant="few") == [(kind, "applied")]
    assert answers(bench, Hint(kind, 60.0), session="0", tenant="many") == [(kind, "applied")], "it has a time already"
    late = make_request(9, prompt(9, 40), 1, session_id="9", tenant="many", hints=(Hint(kind, 60.0),))
    assert [a.status for a in bench.submit(late).hints] == ["ignored"]
    bench.drain()


# -- when to bring a session up -------------------------------------------------------------------------------------


def due(bench: Bench) -> float | None:
    return bench.engine._board.prefetches.next_s


def test_a_session_has_one_time_and_the_last_word_counts() -> None:
    bench = crowded_out()
    for seconds in (60.0, 30.0, 600.0):
        answers(bench, Hint("resume_in", seconds))
    assert len(bench.engine._board.prefetches) == 1
    assert bench.now + 590.0 < bench.engine.wake_at < bench.now + 600.0


@pytest.mark.parametrize("void", [lambda bench: run(bench, 9, prompt(1, 100) + [1] * 9, session_id="s"),
                                  lambda bench: answers(bench, Hint("release"))])  # fmt: skip
def test_a_time_is_void_when_the_next_turn_begins(void: Callable[[Bench], object]) -> None:
    bench = crowded_out()
    answers(bench, Hint("resume_in", 60.0))
    void(bench)
    assert due(bench) is None and bench.engine.wake_at is None


def test_demoted_now_and_back_later_is_brought_up_then() -> None:
    bench = crowded_out()
    assert answers(bench, Hint("resume_in", 60.0), Hint("demote")) == [("resume_in", "applied"), ("demote", "applied")]
    assert due(bench) is not None


def brought_up(bench: Bench) -> tuple[Load, ...]:
    bench.now = bench.engine.wake_at
    plan = bench.plan()
    return plan.loads if plan is not None else ()


def test_who_may_come_at_any_moment_is_brought_up_whenever_its_blocks_are_gone() -> None:
    """With the hint of a request everything is there still, and goes while the client thinks."""
    bench, _ = keeping(num_blocks=32, policy=QuietOrder())
    run(bench, 1, prompt(1, 100), session_id="s", hints=(Hint("resume_in", 80.0, bound="at_most"),))
    started = bench.now
    assert brought_up(bench) == () and bench.now == pytest.approx(started + 10.0, abs=1.0)
    run(bench, 2, prompt(2, 510), 1)
    (load,) = brought_up(bench)
    assert len(load.keys) == 6 and bench.now == pytest.approx(started + 20.0, abs=1.0)
    bench.drain()
    assert due(bench) is None, "once: what makes it go again is worth more"


def test_looking_ends_with_the_time_that_was_said() -> None:
    bench, _ = keeping(num_blocks=32, policy=QuietOrder())
    run(bench, 1, prompt(1, 100), session_id="s", hints=(Hint("resume_in", 80.0, bound="at_most"),))
    looks, started = 0, bench.now
    while bench.engine.wake_at is not None:
        assert brought_up(bench) == ()
        looks += 1
    assert looks == timetable.LOOKS - 1 and bench.now < started + 80.0


@pytest.mark.parametrize("policy", [LRU(), TTL()], ids=["lru", "ttl"])
def test_what_moves_bytes_is_applied_whatever_the_policy_thinks(policy: RetentionPolicy) -> None:
    bench, _ = keeping(policy=policy)
    run(bench, 1, prompt(1, 40), session_id="s")
    assert answers(bench, Hint("resume_in", 60.0)) == [("resume_in", "applied")]
    assert due(bench) is not None
    bare = Bench(policy=policy)
    run(bare, 1, prompt(1, 40), session_id="s")
    assert answers(bare, Hint("resume_in", 60.0)) == [("resume_in", "ignored")]
    assert due(bare) is None


def test_what_is_ignored_has_no_effect_on_the_policy() -> None:
    """No tier below the device: a demotion is refused, and the session is expected back as before."""
    bench = Bench(num_blocks=64, policy=AgentPolicy(64))
    run(bench, 1, prompt(1, FIVE), 1, session_id="s")
    before = bench.engine.cache_report(bench.now).sessions[0].return_in_s
    (answer,) = bench.engine.hint("", "s", (Hint("demote"),), bench.now)
    assert answer.status == "ignored"
    assert before is not None and bench.engine.cache_report(bench.now).sessions[0].return_in_s == before


@pytest.mark.parametrize("policy", [AgentPolicy(64), TTL()], ids=["agent", "ttl"])
def test_what_is_retained_is_so_until_the_next_turn_begins(policy: RetentionPolicy) -> None:
    bench = Bench(num_blocks=64, policy=policy)
    run(bench, 1, prompt(1, FIVE), 1, session_id="s")
    assert answers(bench, Hint("retain", 600.0)) == [("retain", "applied")]
    kept = bench.engine.cache_report(bench.now).sessions[0].kept_for_s
    assert kept is not None and kept > 500
    run(bench, 2, prompt(1, FIVE + 40), 1, session_id="s")
    assert bench.engine.cache_report(bench.now).sessions[0].kept_for_s is None


# -- after the end --------------------------------------------------------------------------------------------------

AFTERWARDS = (
    Hint("resume_in", 60.0),
    Hint("retain", 60.0),
    Hint("prefetch"),
    Hint("demote"),
    Hint("children", count=2),
)


@pytest.mark.parametrize("hint", AFTERWARDS, ids=lambda hint: hint.kind)
def test_what_is_said_of_a_released_session_has_no_effect_and_is_said_to_have_none(hint: Hint) -> None:
    bench = crowded_out()
    assert answers(bench, Hint("release"), hint) == [("release", "applied"), (hint.kind, "ignored")]
    (told,) = bench.engine.hint("", "s", (hint,), bench.now)
    assert told.status == "ignored" and "released" in told.reason
    assert due(bench) is None
    report = bench.engine.cache_report(bench.now)
    assert next(s for s in report.sessions if s.session_id == "s").kept_for_s is None
    assert answers(bench, Hint("release")) == [("release", "applied")], "once more does no harm"
    run(bench, 9, prompt(1, 100) + [1] * 9, session_id="s")
    assert answers(bench, hint) == [(hint.kind, "applied")], "it has begun anew"


def test_a_request_hears_at_once_that_its_session_ends_with_it() -> None:
    """An earlier release is void by then; one among its own hints is not."""
    bench = crowded_out()
    answers(bench, Hint("release"))
    hints = (Hint("resume_in", 60.0), Hint("release"), Hint("resume_in", 60.0))
    verdict = bench.submit(make_request(9, prompt(1, 100) + [1] * 9, 2, session_id="s", hints=hints))
    expected = [("resume_in", "applied"), ("release", "applied"), ("resume_in", "ignored")]
    assert [(a.kind, a.status) for a in verdict.hints] == expected
    bench.drain()
    told = bench.engine.stats().hints
    assert (told["resume_in:applied"], told["resume_in:ignored"], due(bench)) == (1, 1, None)


def test_what_is_said_of_a_session_concerns_those_of_its_streams_that_go_on() -> None:
    """A side call under its name came after the end."""
    bench = Bench(policy=QuietOrder())
    run(bench, 1, prompt(1, 100), session_id="s")
    answers(bench, Hint("release"))
    run(bench, 2, prompt(2, 100), session_id="s")
    assert answers(bench, Hint("retain", 60.0)) == [("retain", "applied")]
    kept = {s.why: s.kept_for_s for s in bench.engine.cache_report(bench.now).sessions}
    assert kept["released"] is None and kept[""] is not None
