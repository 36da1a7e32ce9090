"""The agent policy: what it makes of turns, tools, families and hints, and what it tells of it."""

from __future__ import annotations

import random

import pytest

from samovar.policy.agent import SUPERSEDED, AgentPolicy
from samovar.policy.hints import HINT_KINDS, Hint
from samovar.policy.retention import EXPIRED, TurnEnd, TurnStart
from tests.policy.helpers import Room, keys_of, leaf


def _turn(
    policy: AgentPolicy, stream: str, now: float, reason: str = "", tools: tuple[str, ...] = (), parent: str = ""
) -> None:
    policy.turn_started(TurnStart(stream, parent, 10, 0), now)
    policy.turn_ended(TurnEnd(stream, 10, reason, tools), now + 1.0)


def _value(policy: AgentPolicy, stream: str, now: float) -> float:
    return policy.value(leaf(stream, now), now)


def test_the_order_of_the_ways_a_turn_ends() -> None:
    policy = AgentPolicy()
    for stream, reason in (("tool", "tool_calls"), ("answer", "stop"), ("closed", "stop")):
        _turn(policy, stream, 0.0, reason)
    policy.hinted("closed", Hint("release"), 1.0)
    values = [_value(policy, stream, 5.0) for stream in ("closed", "answer", "tool")]
    assert values == sorted(values) and len(set(values)) == 3
    assert policy.value(leaf("tool", 5.0, superseded=True), 5.0) == SUPERSEDED < values[0]
    assert SUPERSEDED > EXPIRED


def test_how_a_turn_ended_may_be_told_later() -> None:
    policy = AgentPolicy()
    for stream in ("tool", "answer"):
        _turn(policy, stream, 0.0)
    assert _value(policy, "tool", 3.0) == _value(policy, "answer", 3.0)
    policy.outcome("tool", "tool_calls", (), 3.0)
    policy.outcome("answer", "stop", (), 3.0)
    policy.outcome("never seen", "stop", (), 3.0)
    assert _value(policy, "tool", 3.0) > _value(policy, "answer", 3.0)


def _learn_tools(policy: AgentPolicy, rounds: int) -> float:
    """Tool A returns in 5 s, tool B in 600 s; each in streams of its own. Returns the time afterwards."""
    now = 0.0
    for turn in range(rounds):
        for number in range(3):
            _turn(policy, f"a{turn}.{number}", now, "tool_calls", ("A",))
            _turn(policy, f"b{turn}.{number}", now, "tool_calls", ("B",))
        for number in range(3):
            _turn(policy, f"a{turn}.{number}", now + 6.0, "stop")
        for number in range(3):
            _turn(policy, f"b{turn}.{number}", now + 601.0, "stop")
        now += 1000.0
    return now


def test_tools_are_learned_and_the_slow_one_goes_first() -> None:
    policy = AgentPolicy()
    _turn(policy, "b", 0.0, "tool_calls", ("B",))
    _turn(policy, "a", 0.0, "tool_calls", ("A",))
    assert _value(policy, "a", 2.0) == _value(policy, "b", 2.0), "nothing is known of either"
    now = 10_000.0 + _learn_tools(policy, 10)
    room = Room(30, policy)
    room.begin("waits for A", keys_of("a", 10), now)
    room.end("waits for A", now, "tool_calls", ("A",))
    room.begin("waits for B", keys_of("b", 10), now + 1.0)
    room.end("waits for B", now + 1.0, "tool_calls", ("B",))
    room.turn("other", keys_of("other", 15), now + 2.0)
    assert (room.has(keys_of("a", 10)), room.has(keys_of("b", 10))) == (10, 5), "the newer one went"
    soon = policy.outlook("waits for A", now + 2.0)
    assert soon.why == "called A" and soon.return_in_s == pytest.approx(3.0, abs=0.5)
    expected = policy.outlook("waits for B", now + 2.0).return_in_s
    assert expected is not None and 400 < expected < 700


def test_of_several_tools_the_slowest_counts() -> None:
    policy = AgentPolicy()
    now = 10_000.0 + _learn_tools(policy, 10)
    for stream, tools in (("both", ("A", "B")), ("b", ("B",)), ("a", ("A",))):
        _turn(policy, stream, now, "tool_calls", tools)
    assert _value(policy, "both", now + 3.0) == _value(policy, "b", now + 3.0) < _value(policy, "a", now + 3.0)


# -- families ----------------------------------------------------------------------------------------------------------


def _family(policy: AgentPolicy, children: int = 2) -> None:
    _turn(policy, "parent", 0.0, "tool_calls")
    for child in range(children):
        _turn(policy, f"child {child}", 2.0 + child, "tool_calls", parent="parent")


@pytest.mark.parametrize("now", [10.0, 100.0, 5000.0])
def test_a_parent_is_worth_more_than_its_most_valuable_live_child(now: float) -> None:
    policy = AgentPolicy()
    _family(policy)
    for grandchild in ("young", "younger"):
        _turn(policy, grandchild, now - 1.0, "tool_calls", parent="child 0")
    values = [_value(policy, name, now) for name in ("parent", "child 0", "young")]
    assert values[0] > values[1] > values[2] > 0
    assert values[0] > _value(policy, "child 1", now)


@pytest.mark.parametrize("children", [1, 2])
def test_against_others_a_parent_stands_for_itself(children: int) -> None:
    policy = AgentPolicy()
    _family(policy, children)
    assert _value(policy, "parent", 10.0) > _value(policy, "child 0", 10.0), "a child asks for room"
    _turn(policy, "other", 10.0, "tool_calls")
    assert 0.0 < _value(policy, "parent", 12.0) < _value(policy, "child 0", 12.0)


def test_when_the_last_child_ends_the_parent_is_due() -> None:
    policy = AgentPolicy()
    _family(policy)
    _turn(policy, "child 0", 300.0, "stop")
    assert policy.outlook("parent", 301.0).why == "waits for 1 sub-agent"
    before = _value(policy, "parent", 302.0)
    _turn(policy, "child 1", 302.0, "stop")
    assert policy.outlook("parent", 303.0).why == "its sub-agents are done"
    assert _value(policy, "parent", 303.5) > max(before, _value(policy, "child 1", 303.5))


def test_a_child_that_goes_on_is_live_again() -> None:
    policy = AgentPolicy()
    _family(policy, 1)
    _turn(policy, "child 0", 10.0, "stop")
    _turn(policy, "child 0", 20.0, "tool_calls")
    assert policy.outlook("parent", 22.0).why == "waits for 1 sub-agent"


@pytest.mark.parametrize("reason", ["length", "abort"])
def test_a_child_that_was_cut_short_is_still_live(reason: str) -> None:
    policy = AgentPolicy()
    _family(policy, 1)
    _turn(policy, "child 0", 10.0, reason)
    assert policy.outlook("parent", 12.0).why == "waits for 1 sub-agent"
    assert policy.outlook("child 0", 12.0).why.startswith("was cut short")
    _turn(policy, "child 0", 20.0, "stop")
    assert policy.outlook("parent", 22.0).why.startswith("its sub-agents are done")


@pytest.mark.parametrize("told_later", [False, True])
def test_a_child_that_came_back_after_an_answer_is_not_ended_by_answers(told_later: bool) -> None:
    policy = AgentPolicy()
    _family(policy, 1)
    for start_s in (10.0, 20.0):
        _turn(policy, "child 0", start_s, "" if told_later else "stop")
        if told_later:
            policy.outcome("child 0", "stop", (), start_s + 1.0)
        first = start_s == 10.0
        assert policy.outlook("parent", start_s + 2.0).why.startswith("its sub-agents" if first else "waits for 1")
        assert policy.outlook("child 0", start_s + 2.0).why.startswith("has done its task" if first else "answered")
    policy.hinted("child 0", Hint("release"), 30.0)
    assert policy.outlook("parent", 31.0).why.startswith("its sub-agents are done"), "it said so itself"


def test_children_may_be_told_before_any_is_seen() -> None:
    policy = AgentPolicy()
    _turn(policy, "parent", 0.0, "tool_calls")
    assert policy.hinted("parent", Hint("children", count=2), 1.0).status == "applied"
    assert policy.outlook("parent", 1.0).why == "waits for 2 sub-agents"
    _turn(policy, "one", 2.0, "stop", parent="parent")
    assert policy.outlook("parent", 4.0).why == "waits for 1 sub-agent"
    _turn(policy, "two", 5.0, "stop", parent="parent")
    assert policy.outlook("parent", 7.0).why.startswith("its sub-agents are done")
    policy.hinted("parent", Hint("children", count=3), 8.0)
    policy.hinted("parent", Hint("children", count=0), 9.0)
    assert policy.outlook("parent", 9.0).why.startswith("its sub-agents are done")


def test_streams_that_call_each_other_their_parent_are_no_endless_loop() -> None:
    policy = AgentPolicy()
    for turn in range(3):
        _turn(policy, "a", 10.0 * turn, "tool_calls", parent="b")
        _turn(policy, "b", 10.0 * turn + 3.0, "tool_calls", parent="a")
        _turn(policy, "c", 10.0 * turn + 4.0, "tool_calls", parent="c")
    assert _value(policy, "a", 40.0) > 0.0 and _value(policy, "c", 40.0) > 0.0
    policy.check()


def test_where_lru_decides_a_parent_is_as_recent_as_its_children() -> None:
    policy = AgentPolicy(100)
    _family(policy)
    policy.guard.trusted = False
    parent, child, other = leaf("parent", 1.0), leaf("child 0", 3.0), leaf("other", 3.5)
    assert policy.value(parent, 10.0) > policy.value(child, 10.0) == 3.0
    assert policy.value(parent, 10.0) > policy.value(other, 10.0) == 3.5
    policy.turn_started(TurnStart("other"), 10.0)
    policy.guard.trusted = False
    assert policy.value(parent, 10.0) == 1.0, "against others it stands for itself"
    for name, start_s in (("child 0", 10.0), ("child 1", 30.0)):
        _turn(policy, name, start_s, "stop")
        policy.guard.trusted = False
        assert policy.value(parent, start_s + 5.0) == 12.0, "as recent as when one of several ended, not the last"


def test_where_lru_decides_a_parent_of_one_child_is_as_recent_as_it_is_itself() -> None:
    policy = AgentPolicy(100)
    _family(policy, 1)
    for start_s in (10.0, 30.0):
        policy.guard.trusted = False
        assert policy.value(leaf("parent", 1.0), start_s) == 1.0
        _turn(policy, "child 0", start_s, "stop")


# -- hints -------------------------------------------------------------------------------------------------------------


def test_every_hint_is_answered() -> None:
    policy = AgentPolicy()
    _turn(policy, "a", 0.0, "stop")
    for kind in HINT_KINDS:
        told, asked = policy.hinted("a", Hint(kind, 5.0, 1), 1.0), policy.hinted("", Hint(kind, 5.0, 1), 1.0)
        assert told == asked
        assert told.status == ("ignored" if kind == "priority" else "applied")
        assert bool(told.reason) == (told.status == "ignored")
    assert policy.hinted("unknown", Hint("release"), 1.0).reason == "nothing is known of this session"
    assert policy.hinted("a", Hint("retain", float("nan")), 1.0).status == "ignored"


def test_a_turn_makes_earlier_hints_void() -> None:
    policy = AgentPolicy()
    for stream in ("hinted", "plain"):
        _turn(policy, stream, 0.0, "stop")
    policy.hinted("hinted", Hint("release"), 1.0)
    for stream in ("hinted", "plain"):
        _turn(policy, stream, 10.0, "stop")
    assert _value(policy, "hinted", 12.0) == _value(policy, "plain", 12.0)


def test_a_hint_given_while_the_turn_runs_counts_from_then() -> None:
    policy = AgentPolicy()
    for stream in ("hinted", "plain"):
        policy.turn_started(TurnStart(stream, "", 10, 0), 0.0)
    policy.hinted("hinted", Hint("resume_in", 100.0), 0.0)
    assert policy.outlook("hinted", 1.0).why == ""
    for stream in ("hinted", "plain"):
        policy.turn_ended(TurnEnd(stream, 10, "stop"), 60.0)
    assert _value(policy, "hinted", 90.0) > 3 * _value(policy, "plain", 90.0)
    assert policy.outlook("hinted", 90.0).why == "answered, said to be back in 100 s"


def test_closed_and_kept_streams_say_so() -> None:
    policy = AgentPolicy()
    _turn(policy, "a", 0.0, "stop")
    policy.hinted("a", Hint("retain", 60.0), 1.0)
    assert policy.outlook("a", 1.0).until_s == 61.0
    policy.hinted("a", Hint("release"), 2.0)
    outlook = policy.outlook("a", 2.0)
    assert (outlook.why, outlook.return_in_s, outlook.until_s) == ("closed", None, None)
    assert policy.outlook("unknown", 2.0).why == ""


# -- everything else ---------------------------------------------------------------------------------------------------


def test_what_costs_more_to_have_back_is_worth_more() -> None:
    policy = AgentPolicy()
    _turn(policy, "a", 0.0, "stop")
    cheap, dear = leaf("a", 1.0, restore_s=0.5), leaf("a", 1.0, restore_s=2.0)
    assert policy.value(dear, 5.0) == pytest.approx(4 * policy.value(cheap, 5.0))


def test_streams_nobody_knows_are_worth_what_their_age_says() -> None:
    policy = AgentPolicy()
    values = [policy.value(leaf("", used_s), 1000.0) for used_s in (0.0, 900.0, 990.0)]
    assert values == sorted(values) and values[0] > 0.0


def test_memory_is_bounded() -> None:
    policy = AgentPolicy(1000, max_streams=40)
    now = 0.0
    for turn in range(600):
        now += 7.0
        _turn(policy, f"s{turn % 150}", now, "stop", parent=f"s{(turn + 1) % 150}")
        policy.check()
    assert len(policy.following.memory) == 40


def test_looking_changes_nothing() -> None:
    """Who asks for values and outlooks, and when, must not change what is answered later."""
    answers = []
    for looks in (False, True):
        policy = AgentPolicy(300)
        draw = random.Random(5)
        now = 0.0
        for _ in range(400):
            now += draw.expovariate(0.2)
            stream = f"s{draw.randrange(12)}"
            _turn(policy, stream, now, draw.choice(("stop", "tool_calls", "")), ("bash",) * draw.randrange(2))
            if draw.random() < 0.3:
                policy.hinted(stream, Hint("resume_in", draw.uniform(1.0, 99.0)), now + 1.0)
            if looks:
                for other in range(12):
                    policy.outlook(f"s{other}", now + 1.0)
                    policy.value(leaf(f"s{other}", now), now + 500.0)
            now += 1.0
        answers.append([_value(policy, f"s{other}", now) for other in range(12)])
    assert answers[0] == answers[1]


def test_a_tier_has_the_same_knowledge_and_a_guard_of_its_own() -> None:
    policy = AgentPolicy(100)
    tier = policy.tier(1000)
    _turn(policy, "a", 0.0, "stop")
    assert tier.value(leaf("a", 1.0), 5.0) == policy.value(leaf("a", 1.0), 5.0)
    policy.guard.trusted = False
    assert policy.value(leaf("a", 1.0), 5.0) == 1.0 != tier.value(leaf("a", 1.0), 5.0)
    assert (tier.name, tier.sample) == (policy.name, policy.sample)
    tier.turn_started(TurnStart("b"), 6.0)
    assert policy.outlook("b", 6.0).why == "", "events are told to the policy"
