"""Ways to use the same knowledge that backfire, on made agents: what the policy must not become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
import random
from statistics import mean

from samovar.policy.agent import AgentPolicy
from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf, Outlook, RetentionPolicy, TurnEnd, TurnStart
from tests.policy.helpers import Room, keys_of

CONTEXT_BLOCKS, CHILD_BLOCKS = 24, 6
SEEDS = range(1)


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """One turn, which takes no time."""

    at_s: float
    stream: str
    reason: str
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Sessions that start in ten minutes. Tools take 8 s and vary; sessions end with a call that nobody answers."""

    sessions: int
    turns: int
    answer_every: int
    user_s: float
    """Median of the times after answers."""
    children_every: int
    """Turns of which one starts three sub-agents and waits for them."""

    def calls(self, seed: int) -> list[Call]:
        draw = random.Random(seed)
        starts_s = [draw.uniform(0.0, 600.0) for _ in range(self.sessions)]
        return sorted(call for at, start_s in enumerate(starts_s) for call in self._session(f"s{at}", start_s, draw))

    def _session(self, name: str, now: float, draw: random.Random) -> list[Call]:
        calls: list[Call] = []
        for turn in range(1, self.turns + 1):
            answers = turn % self.answer_every == 0 and turn < self.turns
            calls.append(Call(now, name, "stop" if answers else "tool_calls"))
            if turn % self.children_every == 0 and not answers:
                children = [_child(f"{name}.{turn}.{child}", name, now + 0.5, draw) for child in range(3)]
                calls += [call for child in children for call in child]
                now = max(child[-1].at_s for child in children) + 1.0
            else:
                now += draw.lognormvariate(log(self.user_s if answers else 8.0), 0.7)
        return calls


def _child(name: str, parent: str, now: float, draw: random.Random) -> list[Call]:
    calls = []
    for step in range(8):
        calls.append(Call(now, name, "stop" if step == 7 else "tool_calls", parent))
        now += draw.lognormvariate(log(4.5), 0.5)
    return calls


FAMILIES = Load(sessions=24, turns=25, answer_every=6, user_s=60.0, children_every=8)
ABANDONED = Load(sessions=80, turns=9, answer_every=3, user_s=20.0, children_every=1000)


def _hits(policy: RetentionPolicy, calls: list[Call], contexts: int) -> float:
    """Share of prompt blocks found, with room for so many contexts."""
    room = Room(contexts * CONTEXT_BLOCKS, policy)
    found = asked = 0
    for call in calls:
        keys = keys_of(call.stream, CHILD_BLOCKS if call.parent else CONTEXT_BLOCKS)
        found += room.turn(call.stream, keys, call.at_s, call.reason, call.parent)
        asked += len(keys)
    room.check()
    return found / asked


class PerSession:
    """The agent policy, told of session trees as if each were one stream."""

    name, sample = "per-session", 32

    def __init__(self) -> None:
        self._policy = AgentPolicy()

    def _of(self, stream: str) -> str:
        return stream.split(".")[0]

    def value(self, leaf: Leaf, now: float) -> float:
        return self._policy.value(replace(leaf, stream=self._of(leaf.stream)), now)

    def turn_started(self, turn: TurnStart, now: float) -> None:
        self._policy.turn_started(replace(turn, stream=self._of(turn.stream), parent=""), now)

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        self._policy.turn_ended(replace(turn, stream=self._of(turn.stream)), now)

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        self._policy.outcome(self._of(stream), reason, tools, now)

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        return self._policy.hinted(self._of(stream), hint, now)

    def outlook(self, stream: str, now: float) -> Outlook:
        return self._policy.outlook(self._of(stream), now)


class ByReason(PerSession):
    """Whoever called a tool before whoever answered, and in each tier the least recently used."""

    name = "by-reason"

    def __init__(self) -> None:
        super().__init__()
        self._calling: set[str] = set()

    def value(self, leaf: Leaf, now: float) -> float:
        return leaf.last_used_s + (1e9 if leaf.stream in self._calling else 0.0)

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        (self._calling.add if turn.reason == "tool_calls" else self._calling.discard)(turn.stream)


def _mean_hits(make: Callable[[], RetentionPolicy], load: Load, contexts: int) -> float:
    return mean(_hits(make(), load.calls(seed), contexts) for seed in SEEDS)


def test_return_times_belong_to_streams_and_not_to_sessions() -> None:
    """A parent that waits for three sub-agents seems to come back every second."""
    lru, agent, per_session = (_mean_hits(make, FAMILIES, 8) for make in (LRU, AgentPolicy, PerSession))
    assert agent > lru + 0.08
    assert per_session < lru and per_session < agent - 0.1


def test_how_a_turn_ended_is_evidence_and_no_tier() -> None:
    """Calls that nobody ever answers would be kept for ever; users who read fast would not be kept at all."""
    lru, by_reason = (_mean_hits(make, ABANDONED, 20) for make in (LRU, ByReason))
    assert by_reason < lru - 0.08
    assert _mean_hits(lambda: AgentPolicy(20 * CONTEXT_BLOCKS), ABANDONED, 20) > lru - 0.015


def test_what_a_newer_turn_cut_off_goes_first_whatever_it_was_worth() -> None:
    """Streams that are due at once lose their cut tails before one that will hardly come back loses anything."""
    policy = AgentPolicy()
    room = Room(60, policy)
    room.turn("gone", keys_of("gone", 20), 0.0, "stop")
    policy.hinted("gone", Hint("release"), 0.0)
    for at in range(3):
        room.turn(f"due {at}", keys_of(f"due {at}", 12), 1000.0 + at, "tool_calls")
    for at in range(3):
        room.turn(f"due {at}", keys_of(f"due {at}", 6), 1003.0 + at, "tool_calls")
        policy.hinted(f"due {at}", Hint("resume_in", 1.0), 1003.0 + at)
    room.turn("new", keys_of("new", 16), 1006.0, "tool_calls")
    assert room.has(keys_of("gone", 20)) == 20
    assert sorted(room.has(keys_of(f"due {at}", 12)) for at in range(3)) == [6, 6, 12]
