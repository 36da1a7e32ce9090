"""What is learned of one tenant says nothing of another one's blocks."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.policy.agent import AgentPolicy
from samovar.policy.following import Following
from samovar.policy.hints import Hint
from samovar.policy.retention import Outlook, TurnEnd, TurnStart
from samovar.policy.tenants import PerTenant
from tests.policy.helpers import leaf

MINE, THEIRS = "mine", "theirs"


def turn(
    policy: AgentPolicy, tenant: str, stream: str, now: float, reason: str = "stop", tools: tuple[str, ...] = ()
) -> None:
    policy.turn_started(TurnStart(stream, "", 10, 0, tenant), now)
    policy.turn_ended(TurnEnd(stream, 10, reason, tools, tenant), now + 1.0)


# -- whatever others do -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    wait_s: float
    what: str
    stream: str
    reason: str
    tool: str
    hint: Hint


HINTS = st.sampled_from(
    [Hint("retain", 30.0), Hint("resume_in", 7.0), Hint("resume_in", 90.0, bound="at_most"), Hint("release")]
)
EVENTS = st.builds(
    Event,
    st.sampled_from((0.0, 0.3, 6.0, 50.0, 700.0)),
    st.sampled_from(("start", "end", "outcome", "hint")),
    st.sampled_from("abc"),
    st.sampled_from(("tool_calls", "stop", "length", "")),
    st.sampled_from(("read", "write")),
    HINTS,
)


def tell(policy: AgentPolicy, event: Event, tenant: str, now: float) -> None:
    stream = f"{tenant} {event.stream}"
    match event.what:
        case "start":
            policy.turn_started(TurnStart(stream, "", 5, 0, tenant), now)
        case "end":
            policy.turn_ended(TurnEnd(stream, 5, event.reason, (event.tool,), tenant), now)
        case "outcome":
            policy.outcome(stream, event.reason, (event.tool,), now)
        case "hint":
            policy.hinted(stream, event.hint, now)


def seen(policy: AgentPolicy, now: float) -> list[tuple[float, Outlook]]:
    streams = [f"{MINE} {name}" for name in "abc"]
    return [(policy.value(leaf(s, now), now + 3.0), policy.outlook(s, now + 3.0)) for s in streams]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.booleans()), max_size=60))
def test_a_tenants_blocks_are_worth_what_they_are_worth_without_the_others(log: list[tuple[Event, bool]]) -> None:
    """The same events of mine, once with theirs in between: same tools, same hints, and streams of the same names."""
    together, alone, now = AgentPolicy(), AgentPolicy(), 0.0
    for event, mine in log:
        now += event.wait_s
        tell(together, event, MINE if mine else THEIRS, now)
        if mine:
            tell(alone, event, MINE, now)
        assert seen(together, now) == seen(alone, now)
    together.check()


def test_a_tool_is_as_slow_as_its_own_tenants_calls_of_it() -> None:
    policy = AgentPolicy()
    now = 0.0
    for number in range(40):  # theirs takes ten minutes
        turn(policy, THEIRS, f"t{number}", now, "tool_calls", ("build",))
        turn(policy, THEIRS, f"t{number}", now + 601.0)
        now += 700.0
    fresh = AgentPolicy()
    for one in (policy, fresh):
        turn(one, MINE, "m", now, "tool_calls", ("build",))
    turn(policy, THEIRS, "t", now, "tool_calls", ("build",))
    mine, theirs = (policy.outlook(stream, now + 3.0).return_in_s for stream in ("m", "t"))
    assert mine == fresh.outlook("m", now + 3.0).return_in_s
    assert mine is not None and theirs is not None and theirs > 300 > 60 > mine


def test_who_lies_is_not_believed_and_who_does_not_is() -> None:
    policy = AgentPolicy()
    now = 0.0
    for number in range(60):  # said to be back at once, and never are
        turn(policy, THEIRS, f"t{number}", now)
        policy.hinted(f"t{number}", Hint("resume_in", 5.0), now + 1.0)
        now += 500.0
    fresh = AgentPolicy()
    for one in (policy, fresh):
        turn(one, MINE, "m", now)
        one.hinted("m", Hint("resume_in", 5.0), now + 1.0)
    turn(policy, THEIRS, "t", now)
    policy.hinted("t", Hint("resume_in", 5.0), now + 1.0)
    worth = {s: policy.value(leaf(s, now + 1.0), now + 3.0) for s in ("m", "t")}
    assert worth["m"] == fresh.value(leaf("m", now + 1.0), now + 3.0) > 3 * worth["t"]


def test_silences_are_counted_at_events_of_their_own_tenant() -> None:
    """Forty of mine are silent when somebody else does something: nothing of them is known better for that."""
    together, alone = AgentPolicy(), AgentPolicy()
    for policy in (together, alone):
        for number in range(40):
            turn(policy, MINE, f"m{number}", float(number))
    turn(together, THEIRS, "t", 5000.0)
    values = [[p.value(leaf(f"m{n}", 0.0), 5000.0) for n in range(40)] for p in (together, alone)]
    assert values[0] == values[1]
    turn(together, MINE, "other", 5000.0)
    assert [together.value(leaf(f"m{n}", 0.0), 5000.0) for n in range(40)] != values[1], "its own events do"


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_one_who_has_many_streams_pushes_out_none_but_its_own() -> None:
    following = Following(max_streams=20)
    for number in range(5):
        following.turn_started(TurnStart(f"m{number}", tenant=MINE), float(number))
    for number in range(200):
        following.turn_started(TurnStart(f"t{number}", tenant=THEIRS), 10.0 + number)
        following.check()
    assert all(following.memory.get(f"m{number}") is not None for number in range(5)) and len(following.memory) == 20
    assert following.memory.get("t184") is None and following.memory.get("t185") is not None


def test_so_many_tenants_are_remembered_and_the_quietest_is_forgotten() -> None:
    made: list[int] = []
    each = PerTenant(lambda: made.append(0) or made, most=3)
    for tenant in "abcab":
        each.of(tenant)
    assert len(made) == 3
    each.of("d")
    each.check()
    assert len(each) == 3 and len(made) == 4
    for tenant in "abd":
        each.of(tenant)
    assert len(made) == 4, "of c nothing had come for longest"
    each._most = 2
    with pytest.raises(AssertionError):
        each.check()


def test_a_tenant_that_was_forgotten_begins_anew() -> None:
    """Its streams go on; what is counted of them is of no use any more, and harms nobody."""
    policy = AgentPolicy()
    turn(policy, MINE, "m", 0.0, "tool_calls", ("x",))
    for number in range(100):
        turn(policy, f"tenant {number}", f"s{number}", 1.0)
    turn(policy, MINE, "m", 10.0, "tool_calls", ("x",))
    policy.check()
    assert policy.outlook("m", 12.0).return_in_s is not None
