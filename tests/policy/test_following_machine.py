"""What is learned from any sequence of turns, against a model that keeps every silence and adds them up at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
import pytest

from samovar.policy.agent import AgentPolicy
from samovar.policy.hazard import LONGEST_S, Kind
from samovar.policy.hints import Hint
from samovar.policy.retention import TurnEnd, TurnStart
from tests.policy.helpers import leaf

STREAMS = st.sampled_from("abcde")
KINDS = {"tool_calls": Kind.TOOL_CALLS, "stop": Kind.STOP, "length": Kind.OTHER, "": Kind.OPEN}


@dataclass
class Told:
    """One stream. `run_s` is when its turn began while it runs, `idle` is (kind, began) while it is silent."""

    running: int = 0
    run_s: float | None = None
    round_s: float | None = None
    idle: tuple[Kind, float] | None = None


@dataclass
class Model:
    """Streams without parents: every silence by kind, with whether it ended."""

    streams: dict[str, Told] = field(default_factory=lambda: {name: Told() for name in "abcde"})
    silences: list[tuple[Kind, float, bool]] = field(default_factory=list)

    def start(self, name: str, now: float) -> None:
        told = self.streams[name]
        if told.run_s is not None:  # a second turn at once: how long the first one takes is not known
            self.silences.append((Kind.RUNNING, now - told.run_s, False))
        if told.round_s is not None:
            self.silences.append((Kind.ROUND, now - told.round_s, True))
        if told.idle is not None:
            self.silences.append((told.idle[0], now - told.idle[1], True))
        told.running, told.run_s, told.round_s, told.idle = told.running + 1, now, now, None

    def end(self, name: str, reason: str, now: float) -> None:
        told = self.streams[name]
        told.running = max(0, told.running - 1)
        if not told.running:
            if told.run_s is not None:
                self.silences.append((Kind.RUNNING, now - told.run_s, True))
                told.run_s = None
            if told.idle is not None:  # an end without a start: the silence before it came to nothing
                self.silences.append((told.idle[0], now - told.idle[1], False))
            told.idle = KINDS[reason], now

    def outcome(self, name: str, reason: str, now: float) -> None:
        told = self.streams[name]
        if told.idle is not None and told.idle[0] is Kind.OPEN:
            self.silences.append((Kind.OPEN, now - told.idle[1], False))
            told.idle = KINDS[reason], told.idle[1]

    def returns(self, kind: Kind) -> int:
        return sum(1 for found, length_s, ended in self.silences if found is kind and ended and length_s <= LONGEST_S)

    def silent_s(self, kind: Kind, now: float, live: bool) -> float:
        lengths = [length_s for found, length_s, ended in self.silences if found is kind and (ended or live)]
        for told in self.streams.values() if live else ():
            spells = ((Kind.RUNNING, told.run_s), (Kind.ROUND, told.round_s), told.idle or (kind, None))
            lengths += [now - began_s for found, began_s in spells if found is kind and began_s is not None]
        return sum(min(length_s, LONGEST_S) for length_s in lengths)


class FollowingMachine(RuleBasedStateMachine):
    @initialize(capacity=st.sampled_from((0, 30)))
    def begin(self, capacity: int) -> None:
        self.policy, self.model, self.now = AgentPolicy(capacity, sample=3), Model(), 0.0

    @rule(seconds=st.sampled_from((0.0, 0.3, 2.0, 29.0, 400.0, 90_000.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(stream=STREAMS, num_blocks=st.integers(0, 20))
    def start(self, stream: str, num_blocks: int) -> None:
        self.policy.turn_started(TurnStart(stream, "", num_blocks, 0), self.now)
        self.model.start(stream, self.now)

    @rule(stream=STREAMS, reason=st.sampled_from(sorted(KINDS)), tool=st.sampled_from(("", "x", "y")))
    def end(self, stream: str, reason: str, tool: str) -> None:
        self.policy.turn_ended(TurnEnd(stream, 5, reason, (tool,)), self.now)
        self.model.end(stream, reason, self.now)

    @rule(stream=STREAMS, reason=st.sampled_from(sorted(KINDS)), tool=st.sampled_from(("", "x")))
    def outcome(self, stream: str, reason: str, tool: str) -> None:
        self.policy.outcome(stream, reason, (tool,), self.now)
        self.model.outcome(stream, reason, self.now)

    @rule(stream=STREAMS, kind=st.sampled_from(("retain", "resume_in", "release")), seconds=st.floats(0.0, 500.0))
    def hint(self, stream: str, kind: str, seconds: float) -> None:
        self.policy.hinted(stream, Hint(kind, seconds), self.now)  # type: ignore[arg-type]

    @rule(stream=STREAMS)
    def look(self, stream: str) -> None:
        assert self.policy.value(leaf(stream, self.now), self.now + 50.0) >= 0.0
        self.policy.outlook(stream, self.now + 50.0)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "policy"):
            return
        self.policy.check()
        for kind in (Kind.RUNNING, Kind.ROUND, *KINDS.values()):
            hazard = self.policy.following._learned.of("").hazards.of(kind)
            assert sum(hazard._returns) == hazard.num_returns == self.model.returns(kind)
            least = self.model.silent_s(kind, self.now, False)
            most = self.model.silent_s(kind, self.now, True)
            assert least - 1e-6 <= sum(hazard._seconds) <= most + 1e-6
        for name, told in self.model.streams.items():
            known = self.policy.following.memory.get(name)
            assert (known.num_running if known else 0) == told.running


TestFollowing = FollowingMachine.TestCase
TestFollowing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_check_sees_a_stream_that_runs_and_is_silent() -> None:
    policy = AgentPolicy()
    policy.turn_started(TurnStart("a"), 0.0)
    policy.turn_ended(TurnEnd("a"), 1.0)
    known = policy.following.memory.get("a")
    assert known is not None
    known.num_running = 1
    with pytest.raises(AssertionError, match="running"):
        policy.check()
