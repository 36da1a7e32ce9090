"""Keeps what agents are about to use: the order of eviction by what is known of every stream.

The value of a leaf is what keeping it is worth per second (see `silence`) times the seconds that having it back would
cost. Leaves that a newer turn replaced go first. A guard per capacity compares this order with LRU and lets LRU decide
while that is the better one; a parent of several live sub-agents is then, against these, as recent as they are.
"""

from __future__ import annotations

from typing import ClassVar

from samovar.policy.following import Following
from samovar.policy.guard import Guard
from samovar.policy.hazard import Kind, Signs
from samovar.policy.hints import Hint, HintAnswer
from samovar.policy.memory import MAX_STREAMS, Known
from samovar.policy.order_only import OrderOnly
from samovar.policy.retention import Leaf, Outlook, RetentionPolicy, TurnEnd, TurnStart

SAMPLE = 32
SUPERSEDED = -1e18
"""Below every value of a leaf that may be wanted, and not expired."""


class AgentPolicy:
    """One object for several tiers: `tier` makes an order for another capacity, with the same knowledge and a guard of
    its own. Events are told to this object only."""

    def __init__(self, capacity_blocks: int = 0, *, sample: int = SAMPLE, max_streams: int = MAX_STREAMS) -> None:
        """`capacity_blocks` of the cache that it orders; 0, not known: it is not guarded."""
        self._sample = sample
        self._following = Following(max_streams)
        self._guard = Guard(capacity_blocks, sample)
        self._guards = [self._guard]

    @property
    def name(self) -> str:
        return "agent"

    @property
    def sample(self) -> int:
        return self._sample

    @property
    def following(self) -> Following:
        return self._following

    @property
    def guard(self) -> Guard:
        return self._guard

    def tier(self, capacity_blocks: int) -> TierOrder:
        guard = Guard(capacity_blocks, self._sample)
        self._guards.append(guard)
        return TierOrder(self, guard)

    # -- events ----------------------------------------------------------------------------------------------------

    def turn_started(self, turn: TurnStart, now: float) -> None:
        before = self._following.memory.get(turn.stream)
        shared = before.num_blocks if before is not None else 0
        known = self._following.turn_started(turn, now)
        for guard in self._guards:
            guard.turn(turn.stream, shared, turn.num_blocks, lambda name: self._worth(name, now))
        known.num_blocks = turn.num_blocks

    def turn_ended(self, turn: TurnEnd, now: float) -> None:
        before = self._following.memory.get(turn.stream)
        began = before.num_blocks if before is not None else 0
        self._following.turn_ended(turn, now)
        for guard in self._guards:
            guard.grew(turn.stream, max(0, turn.num_blocks - began), lambda name: self._worth(name, now))

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        self._following.outcome(stream, reason, tools, now)

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        if hint.kind == "priority":
            return HintAnswer(hint.kind, "ignored", "the agent policy goes by when a session comes back")
        if not hint.seconds >= 0.0:
            return HintAnswer(hint.kind, "ignored", f"seconds is {hint.seconds}; it must be at least 0")
        if stream and not self._following.hinted(stream, hint, now):
            return HintAnswer(hint.kind, "ignored", "nothing is known of this session")
        return HintAnswer(hint.kind, "applied")

    # -- looking ---------------------------------------------------------------------------------------------------

    def value(self, leaf: Leaf, now: float) -> float:
        return self.value_under(self._guard, leaf, now)

    def value_under(self, guard: Guard, leaf: Leaf, now: float) -> float:
        if leaf.superseded:
            return SUPERSEDED
        known = self._following.memory.get(leaf.stream)
        if not guard.trusted:
            return leaf.last_used_s if known is None else self._following.recency_s(known, leaf.last_used_s)
        if known is None:
            return self._following.unknown_index(now - leaf.last_used_s) * leaf.restore_s
        return self._following.index(known, now) * leaf.restore_s

    def _worth(self, name: str, now: float) -> float:
        known = self._following.memory.get(name)
        return 0.0 if known is None else self._following.index(known, now)

    def outlook(self, stream: str, now: float) -> Outlook:
        known = self._following.memory.get(stream)
        if known is None:
            return Outlook()
        until_s = max((at_s + hint.seconds for hint, at_s in known.said if hint.kind == "retain"), default=None)
        if any(hint.kind == "release" for hint, _ in known.said):
            return Outlook(None, until_s, "closed")
        idle = known.idle
        if idle is None:
            return Outlook(None, until_s)
        return_in_s = idle.curve.median_s(max(0.0, now - idle.began_s))
        if idle.signs.kind is Kind.WAITING:
            return Outlook(return_in_s, until_s, _waiting(known))
        return Outlook(return_in_s, until_s, _why(known, idle.signs, return_in_s))

    def check(self) -> None:
        self._following.check()
        for guard in self._guards:
            guard.check()


class TierOrder(OrderOnly):
    """An `AgentPolicy` at another capacity. Learns nothing by itself: events are the policy's."""

    why_no_hints: ClassVar[str] = "hints are told to the policy, not to one of its tiers"

    def __init__(self, policy: AgentPolicy, guard: Guard) -> None:
        self._policy = policy
        self._guard = guard

    @property
    def name(self) -> str:
        return self._policy.name

    @property
    def sample(self) -> int:
        return self._policy.sample

    @property
    def trusted(self) -> bool:
        """False while LRU decides here."""
        return self._guard.trusted

    def value(self, leaf: Leaf, now: float) -> float:
        return self._policy.value_under(self._guard, leaf, now)

    def outlook(self, stream: str, now: float) -> Outlook:
        return self._policy.outlook(stream, now)


def _waiting(known: Known) -> str:
    count = max(len(known.children), known.awaited)
    return f"waits for {count} sub-agent{'s' if count > 1 else ''}"


def _why(known: Known, signs: Signs, return_in_s: float | None) -> str:
    words = {
        Kind.TOOL_CALLS: f"called {signs.tool}" if signs.tool else "called a tool",
        Kind.STOP: "answered",
        Kind.OTHER: "was cut short",
        Kind.JOINED: "its sub-agents are done",
        Kind.DONE: "has done its task",
    }.get(signs.kind, "ended its turn")
    said = next((hint for hint, _ in reversed(known.said) if hint.kind == "resume_in"), None)
    if said is not None:
        words += f", said to be back {_BOUNDS[said.bound]} {_seconds(said.seconds)}"
    if return_in_s is None:
        return f"{words}, not expected back"
    return words


_BOUNDS = {"exact": "in", "at_most": "within", "at_least": "no sooner than in"}


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def order_for(policy: RetentionPolicy, capacity_blocks: int) -> RetentionPolicy:
    """The policy as it orders another capacity: with a guard of its own, if it has one; whichever else as it is."""
    return policy.tier(capacity_blocks) if isinstance(policy, AgentPolicy) and capacity_blocks else policy
