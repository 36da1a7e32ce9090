"""Parents and their sub-agents: when the wait begins, and that it ends whatever becomes of them."""

from __future__ import annotations

import pytest

from samovar.policy.agent import AgentPolicy
from samovar.policy.hints import Hint
from samovar.policy.retention import TurnEnd, TurnStart


def begin(policy: AgentPolicy, stream: str, now: float, parent: str = "") -> None:
    policy.turn_started(TurnStart(stream, parent, 10, 0), now)


def end(policy: AgentPolicy, stream: str, now: float, reason: str) -> None:
    policy.turn_ended(TurnEnd(stream, 10, reason), now)


def waits(policy: AgentPolicy, now: float) -> bool:
    return "waits for" in policy.outlook("main", now).why


def family(policy: AgentPolicy) -> None:
    """The main agent has begun a sub-agent, which is at work."""
    begin(policy, "main", 0.0)
    end(policy, "main", 1.0, "tool_calls")
    begin(policy, "child", 2.0, "main")


def test_a_parent_that_goes_on_waits_for_nobody_that_is_silent() -> None:
    """The child was cut off: nothing of it says that it ended."""
    policy = AgentPolicy()
    family(policy)
    end(policy, "child", 3.0, "abort")
    assert waits(policy, 4.0)
    begin(policy, "main", 10.0)
    end(policy, "main", 11.0, "tool_calls")
    assert not waits(policy, 12.0)


def test_a_side_call_that_is_made_again_and_again_is_not_waited_for() -> None:
    policy = AgentPolicy()
    for turn in range(5):
        now = 100.0 * turn
        begin(policy, "side", now, "main")
        end(policy, "side", now + 1.0, "stop")
        begin(policy, "main", now + 2.0)
        end(policy, "main", now + 3.0, "tool_calls")
        assert not waits(policy, now + 4.0), turn


def test_one_that_still_runs_is_waited_for() -> None:
    policy = AgentPolicy()
    family(policy)
    begin(policy, "main", 10.0)  # a message to the user while the child works
    end(policy, "main", 11.0, "tool_calls")
    assert waits(policy, 12.0)


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_a_late_word_on_a_turn_that_waits_is_heard(reason: str) -> None:
    """How the turn of an agent in the middle ended is known only after its sub-agent has begun."""
    policy = AgentPolicy()
    begin(policy, "top", 0.0)
    end(policy, "top", 1.0, "tool_calls")
    begin(policy, "main", 2.0, "top")
    end(policy, "main", 3.0, "")
    begin(policy, "child", 3.5, "main")
    policy.outcome("main", reason, (), 4.0)
    assert ("waits for" in policy.outlook("top", 5.0).why) == (reason == "tool_calls")
    assert waits(policy, 5.0) == (reason == "tool_calls")


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length"])
def test_a_client_that_says_so_waits_however_its_turn_ended(reason: str) -> None:
    policy = AgentPolicy()
    begin(policy, "main", 0.0)
    end(policy, "main", 1.0, reason)
    policy.hinted("main", Hint("children", count=3), 2.0)
    assert "3 sub-agents" in policy.outlook("main", 3.0).why
    begin(policy, "main", 50.0)
    end(policy, "main", 51.0, reason)
    assert not waits(policy, 52.0), "a hint holds until the next turn begins"


def test_the_way_it_ended_does_not_undo_what_a_client_said() -> None:
    policy = AgentPolicy()
    begin(policy, "main", 0.0)
    end(policy, "main", 1.0, "")
    policy.hinted("main", Hint("children", count=2), 1.0)
    policy.outcome("main", "stop", (), 1.5)
    assert "2 sub-agents" in policy.outlook("main", 3.0).why
