"""What retention has to do in small caches that can be followed by hand: the real pool and index under a policy."""

from __future__ import annotations

import pytest

from samovar.policy.agent import AgentPolicy
from samovar.policy.choose import choose
from samovar.policy.hints import Hint
from samovar.policy.retention import RetentionPolicy
from samovar.policy.ttl import TTL
from tests.policy.helpers import Room, keys_of

A, B, C = keys_of("a", 6), keys_of("b", 4), keys_of("c", 3)


def _a_and_c(policy: RetentionPolicy) -> Room:
    """A holds 6 of 10 blocks and is to be kept for 30 s, C holds 3 and is newer; one is free."""
    room = Room(10, policy)
    room.turn("a", A, 0.0)
    policy.hinted("a", Hint("retain", 30.0), 0.0)
    room.turn("c", C, 5.0)
    assert room.pool.num_free == 1
    return room


@pytest.mark.parametrize("name", ["ttl", "agent"])
def test_before_its_time_is_over_the_retained_session_stays_and_the_newer_one_goes(name: str) -> None:
    room = _a_and_c(choose(name, 10))
    room.turn("b", B, 10.0)
    assert (room.has(A), room.has(C), room.has(B)) == (6, 0, 4)
    room.check()


@pytest.mark.parametrize("name", ["ttl", "agent"])
def test_after_its_time_is_over_the_tail_of_the_retained_session_goes(name: str) -> None:
    room = _a_and_c(choose(name, 10))
    room.turn("b", B, 31.0)
    assert (room.has(A), room.has(C), room.has(B)) == (3, 3, 4)
    room.check()


def test_what_the_ttl_gives_up_counts_as_expired_and_what_it_must_take_as_evicted() -> None:
    late = _a_and_c(TTL())
    late.turn("b", B, 31.0)
    assert [eviction.expired for eviction in late.index.evicted.values()] == [True] * 3
    early = _a_and_c(TTL())
    early.turn("b", B, 10.0)
    assert [eviction.expired for eviction in early.index.evicted.values()] == [False] * 3


@pytest.mark.parametrize("name", ["lru", "ttl", "agent"])
def test_retention_never_refuses(name: str) -> None:
    policy = choose(name, 10)
    room = Room(10, policy)
    room.turn("a", A, 0.0)
    policy.hinted("a", Hint("retain", 3600.0), 0.0)
    room.turn("b", keys_of("b", 6), 1.0)
    assert (room.has(A), room.has(keys_of("b", 6))) == (4, 6)


@pytest.mark.parametrize("name", ["ttl", "agent"])
def test_what_a_compaction_cut_off_goes_before_any_live_session(name: str) -> None:
    policy = choose(name, 16)
    room = Room(16, policy)
    old = keys_of("old", 6)
    room.turn("oldest", keys_of("x", 4), 0.0)
    room.turn("a", old, 10.0)
    policy.hinted("a", Hint("retain", 3600.0), 10.0)
    compacted = [*old[:2], *keys_of("new", 2)]
    assert room.turn("a", compacted, 20.0) == 2
    assert room.pool.num_free == 4
    room.turn("b", keys_of("b", 8), 21.0)
    assert (room.has(old), room.has(compacted), room.has(keys_of("x", 4))) == (2, 4, 4)
    assert list(room.index.evicted) == old[:1:-1], "leaves first"


@pytest.mark.parametrize("name", ["lru", "ttl", "agent"])
def test_a_main_agent_and_its_subagent_that_take_turns_both_hit_from_their_second_turn(name: str) -> None:
    room = Room(64, choose(name, 64))
    now = 0.0
    for turn in range(6):
        main, sub = keys_of("main", 28), keys_of("sub", 7)
        assert room.turn("main", main, now, "tool_calls") == (28 if turn else 0)
        assert room.turn("sub", sub, now + 3.0, "tool_calls", parent="main") == (7 if turn else 0)
        now += 40.0


@pytest.mark.parametrize("name", ["lru", "agent"])
def test_children_that_take_turns_do_not_evict_their_parent(name: str) -> None:
    """Room for 2.25 parents; the four children are half a parent each, and have five turns."""
    size = 400
    room = Room(900, choose(name, 900))
    parent, now = keys_of("parent", size), 0.0
    room.turn("parent", parent, now, "tool_calls")
    for turn in range(5):
        for child in range(4):
            now += 2.0
            room.begin(f"child {child}", keys_of(f"child {child}", size // 2), now, parent="parent")
            room.end(f"child {child}", now + 1.0, "tool_calls" if turn < 4 else "stop")
    hit = room.begin("parent", parent, now + 5.0)
    assert hit == 100 if name == "lru" else hit >= 0.95 * size


def test_without_a_guard_the_parent_stays_as_well() -> None:
    room = Room(900, AgentPolicy())
    room.turn("parent", keys_of("parent", 400), 0.0, "tool_calls")
    for turn in range(40):
        room.turn(f"child {turn % 4}", keys_of(f"child {turn % 4}", 200), 1.0 + turn, "tool_calls", parent="parent")
    assert room.has(keys_of("parent", 400)) == 400
