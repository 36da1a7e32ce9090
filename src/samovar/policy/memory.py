"""The streams an agent-aware policy remembers, who waits for whom, and when to look at the silent ones again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

from samovar.policy.hazard import LONGEST_S, Kind
from samovar.policy.hints import Hint
from samovar.policy.pace import Pace
from samovar.policy.running import Running
from samovar.policy.spell import Spell

MAX_STREAMS = 8192
ENDS_MEMORY = 0.9
"""What the end of an earlier turn counts for, against the one after it."""
MAX_CHILDREN = 64
"""Live sub-agents of one stream that are remembered."""
FIRST_LOOK_S = 60.0
"""A silence is looked at again after that much of it, and each time that it has become three times as long."""
MAX_LOOKS = 64
"""At one event. A tenant that was away has thousands that are due, and whoever tells of the event waits."""


@dataclass(slots=True, eq=False)
class Known:
    """A stream. `round` counts from the start of its last turn to that of the next one; `run` is there while it runs,
    `idle` after that. What is expected while it runs is in `running`."""

    name: str
    tenant: str = ""
    parent: str = ""
    num_running: int = 0
    num_blocks: int = 0
    """Of its last turn."""
    seen_s: float = 0.0
    """When its last turn began or ended."""
    run: Spell | None = None
    round: Spell | None = None
    running: Running | None = None
    idle: Spell | None = None
    pace: Pace = field(default_factory=Pace)
    answer_pace: Pace = field(default_factory=Pace)
    """Of the silences after its answers, which are its user's."""
    ends: dict[Kind, float] = field(default_factory=dict)
    """How its turns ended, the latest counting most."""
    said: tuple[tuple[Hint, float], ...] = ()
    """Hints since its last turn began, each with its time: at most one of a kind."""
    children: dict[str, None] = field(default_factory=dict)
    """Its live sub-agents, the latest last."""
    several_s: float = -inf
    """When one of several live sub-agents last ended."""
    awaited: int = 0
    """Sub-agents that a client said are at work and that have not ended yet."""
    answers_in_between: bool = False
    """A sub-agent that came back after an answer: its answers are no sign that it is done."""
    end_open: bool = False
    """How its last turn ended is not known yet."""
    watched: bool = False

    def ended(self, kind: Kind) -> None:
        """Its turn ended that way."""
        self.ends = {other: ENDS_MEMORY * count for other, count in self.ends.items()}
        self.ends[kind] = self.ends.get(kind, 0.0) + 1.0

    def judged(self, kind: Kind) -> None:
        """That is how the turn ended of which it was not known."""
        self.ends[Kind.OPEN] = max(0.0, self.ends.get(Kind.OPEN, 0.0) - 1.0)
        self.ends[kind] = self.ends.get(kind, 0.0) + 1.0

    @property
    def waits(self) -> bool:
        return bool(self.children) or self.awaited > 0


@dataclass(slots=True)
class _Tenant:
    seen: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Its streams, those seen longest ago first."""
    looks: list[tuple[float, int, Known]] = field(default_factory=list)
    """A heap: when to look at silent ones again."""


class Memory:
    """Bounded: of the tenant that has most streams the one seen longest ago is forgotten."""

    def __init__(self, max_streams: int = MAX_STREAMS) -> None:
        self._streams: dict[str, Known] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._max_streams = max_streams
        self._num_looks = 0

    def __len__(self) -> int:
        return len(self._streams)

    def get(self, name: str) -> Known | None:
        return self._streams.get(name)

    def seen(self, name: str, now: float, tenant: str = "") -> Known:
        """A stream that began or ended a turn. `tenant`: of one that is new."""
        known = self._streams.get(name)
        if known is None:
            known = self._streams[name] = Known(name, tenant)
            self._tenants.setdefault(tenant, _Tenant()).seen[name] = None
            if len(self._streams) > self._max_streams:
                self._forget()
        self._tenants[known.tenant].seen.move_to_end(name)
        known.seen_s = now
        return known

    def _forget(self) -> None:
        tenant = max(self._tenants.values(), key=lambda one: len(one.seen))
        gone = self._streams.pop(tenant.seen.popitem(last=False)[0])
        if not tenant.seen:
            del self._tenants[gone.tenant]
        parent = self._streams.get(gone.parent)
        if parent is not None:
            parent.children.pop(gone.name, None)
        if len(tenant.looks) > 2 * self._max_streams:
            tenant.looks = [look for look in tenant.looks if self._streams.get(look[2].name) is look[2]]
            heapify(tenant.looks)

    def watch(self, known: Known, now: float) -> None:
        """Look at it again later; to be called when a silence begins."""
        if not known.watched:
            self._push(known, now + FIRST_LOOK_S)

    def _push(self, known: Known, at_s: float) -> None:
        known.watched = True
        self._num_looks += 1
        heappush(self._tenants[known.tenant].looks, (at_s, self._num_looks, known))

    def due(self, tenant: str, now: float) -> Iterator[Known]:
        """Streams of a tenant whose silence is to be counted, those due longest first; what is more than `MAX_LOOKS`
        is left for the tenant's next events. Others' are left for events of their own: what is known of them is not to
        depend on when somebody else does something."""
        found = self._tenants.get(tenant)
        looks = found.looks if found is not None else []
        for _ in range(MAX_LOOKS):
            if not looks or looks[0][0] > now:
                return
            _, _, known = heappop(looks)
            known.watched = False
            if self._streams.get(known.name) is not known:
                continue
            began_s = max((spell.began_s for spell in (known.round, known.idle) if spell is not None), default=now)
            silent_s = now - began_s
            if silent_s <= LONGEST_S:
                self._push(known, now + max(FIRST_LOOK_S, 2.0 * silent_s))
            yield known

    # -- families --------------------------------------------------------------------------------------------------

    def parent_of(self, known: Known) -> Known | None:
        parent = self._streams.get(known.parent) if known.parent else None
        return None if parent is known else parent

    def add_child(self, parent: Known, child: Known) -> None:
        parent.children.pop(child.name, None)
        parent.children[child.name] = None
        while len(parent.children) > MAX_CHILDREN:
            del parent.children[next(iter(parent.children))]

    def live_children(self, parent: Known) -> Iterator[Known]:
        for name in parent.children:
            child = self._streams.get(name)
            if child is not None and child is not parent:
                yield child

    def check(self) -> None:
        assert len(self._streams) <= self._max_streams
        seen = [(name, tenant) for tenant, one in self._tenants.items() for name in one.seen]
        assert sorted(seen) == sorted((name, known.tenant) for name, known in self._streams.items())
        assert all(one.seen for one in self._tenants.values()), "a tenant without streams"
        for name, known in self._streams.items():
            assert known.name == name
            assert known.num_running >= 0 and known.awaited >= 0
            assert len(known.children) <= MAX_CHILDREN
            assert known.num_running == 0 or known.idle is None, "a running stream is not silent"
        looks = [(tenant, known) for tenant, one in self._tenants.items() for _, _, known in one.looks]
        assert all(tenant == known.tenant for tenant, known in looks)
        watched = [known for _, known in looks if self._streams.get(known.name) is known]
        assert len(watched) == len({known.name for known in watched}), "looked at twice"
        assert all(known.watched for known in watched)
