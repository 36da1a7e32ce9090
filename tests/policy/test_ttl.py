"""The TTL policy: how long, in which order, and what hints change."""

from __future__ import annotations

import pytest

from samovar.policy.hints import Hint
from samovar.policy.retention import EXPIRED, TurnEnd, TurnStart
from samovar.policy.ttl import TTL
from tests.policy.helpers import leaf


def test_a_stream_is_kept_for_the_default_time_and_then_given_up() -> None:
    policy = TTL(ttl_s=300.0)
    assert policy.value(leaf("a", 0.0), 300.0) > EXPIRED
    assert policy.value(leaf("a", 0.0), 300.1) == EXPIRED


def test_inside_their_times_the_least_recently_used_goes_first_and_the_asked_for_last() -> None:
    policy = TTL()
    policy.hinted("asked", Hint("retain", 100.0), 0.0)
    policy.hinted("asked too", Hint("retain", 100.0), 0.0)
    leaves = [leaf("plain", 3.0), leaf("plain", 50.0), leaf("asked", 1.0), leaf("asked too", 2.0)]
    values = [policy.value(found, 60.0) for found in leaves]
    assert values == sorted(values) and len(set(values)) == 4
    assert policy.value(leaf("plain", 60.0, superseded=True), 60.0) < values[0]


def test_what_was_asked_holds_until_the_next_turn_begins() -> None:
    policy = TTL()
    policy.hinted("a", Hint("retain", 30.0), 0.0)
    policy.turn_started(TurnStart("a"), 20.0)
    assert policy.outlook("a", 20.0).until_s is None
    policy.hinted("a", Hint("retain", 40.0), 22.0)
    policy.turn_ended(TurnEnd("a"), 25.0)
    assert policy.outlook("a", 30.0).until_s == 65.0
    assert policy.value(leaf("a", 25.0), 65.0) > EXPIRED
    assert policy.value(leaf("a", 25.0), 65.1) == EXPIRED


def test_a_release_is_the_end_until_the_stream_goes_on_all_the_same() -> None:
    policy = TTL()
    assert policy.hinted("a", Hint("release"), 5.0).status == "applied"
    assert policy.value(leaf("a", 5.0), 5.0) == EXPIRED
    assert policy.outlook("a", 5.0).why == "closed"
    policy.turn_started(TurnStart("a"), 6.0)
    assert policy.value(leaf("a", 6.0), 7.0) == 6.0


@pytest.mark.parametrize("kind", ["resume_in", "demote", "prefetch", "priority", "children"])
def test_other_hints_are_ignored_with_the_reason(kind: str) -> None:
    answer = TTL().hinted("a", Hint(kind), 0.0)  # type: ignore[arg-type]
    assert answer.status == "ignored" and "ttl" in answer.reason


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    assert TTL().hinted("a", Hint("retain", seconds), 0.0).status == "ignored"


def test_what_a_hint_would_be_answered_can_be_asked_without_a_stream() -> None:
    policy = TTL()
    assert policy.hinted("", Hint("retain", 10.0), 0.0).status == "applied"
    assert policy.value(leaf("", 0.0), 11.0) == 0.0, "nobody was hinted"


def test_memory_is_bounded() -> None:
    policy = TTL(max_streams=3)
    for at in range(5):
        policy.hinted(str(at), Hint("retain", 1000.0), 0.0)
    assert [policy.outlook(str(at), 1.0).until_s for at in range(5)] == [None, None, 1000.0, 1000.0, 1000.0]
