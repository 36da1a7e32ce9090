"""Follows streams from turn to turn: what became of each silence is learned, and what each stream is worth comes of it.

Everything is learned from events. Looking (`index`, `recency_s`, `outlook`) changes nothing, so that what a policy
answers depends on the events alone, not on who asked it in between.
"""

from __future__ import annotations

from samovar.policy.hazard import Hazards, Kind, Signs
from samovar.policy.hints import Hint
from samovar.policy.memory import MAX_STREAMS, Known, Memory
from samovar.policy.retention import TurnEnd, TurnStart
from samovar.policy.silence import EDGES_S, Curve
from samovar.policy.spell import Spell
from samovar.policy.tenants import PerTenant
from samovar.policy.trust import Told, Trust, is_evidence

_KINDS = {"tool_calls": Kind.TOOL_CALLS, "stop": Kind.STOP, "": Kind.OPEN}
_ANSWERS = (Kind.STOP, Kind.DONE)
_OWN_PACE = (Kind.TOOL_CALLS, Kind.STOP, Kind.OPEN, Kind.OTHER)
"""Silences that say something of a stream's pace: in the others it waits for somebody else."""
_WAITS = (Kind.TOOL_CALLS, Kind.OPEN, Kind.JOINED)
"""How a turn ends that waits for the sub-agents it has begun."""
MAX_GENERATIONS = 4
MAX_JUDGED_TOOLS = 8
SEVERAL = 2
TIE = 1.0 + 1e-6
"""A parent is worth a little more than its most valuable child."""


class Learned:
    """What the silences of one tenant's streams have shown."""

    __slots__ = ("hazards", "trust")

    def __init__(self) -> None:
        self.hazards = Hazards()
        self.trust = Trust()


class Following:
    """What is known of all streams; what is learned from one tenant's is for its own. `now` never decreases."""

    def __init__(self, max_streams: int = MAX_STREAMS) -> None:
        self.memory = Memory(max_streams)
        self._learned = PerTenant(Learned)
        self._unknown = Curve(EDGES_S, Hazards().of(Kind.OPEN).rates())
        self._sheltered: tuple[str, ...] = ()
        """Who waits, directly or not, for the stream that began a turn last."""

    # -- events ----------------------------------------------------------------------------------------------------

    def turn_started(self, turn: TurnStart, now: float) -> Known:
        self._count_silent(turn.tenant, now)
        known = self.memory.seen(turn.stream, now, turn.tenant)
        if turn.parent:
            known.parent = turn.parent
        self._child_lives(known)
        self._sheltered = self._waiting_for(known)
        if known.round is not None:
            known.round.ended(now)
        if known.idle is not None:
            self._came_back(known, known.idle, now)
        known.num_running += 1
        known.idle, known.said, known.end_open = None, (), False
        self._stops_waiting(known)
        known.run = Spell(now, self._signs(known, Kind.RUNNING))
        known.round = Spell(now, self._signs(known, Kind.ROUND))
        known.running = self._of(known).hazards.running(
            known.ends, sub_agent=bool(known.parent), tool_level=known.pace.level, answer_level=known.answer_pace.level
        )
        self.memory.watch(known, now)
        return known

    def _came_back(self, known: Known, idle: Spell, now: float) -> None:
        expected = idle.ended(now)
        if idle.signs.kind is Kind.DONE:
            known.answers_in_between = True
        if idle.signs.kind in _OWN_PACE:
            pace = known.answer_pace if idle.signs.kind is Kind.STOP else known.pace
            pace.came_back(expected)

    def turn_ended(self, turn: TurnEnd, now: float) -> Known:
        self._count_silent(turn.tenant, now)
        known = self.memory.seen(turn.stream, now, turn.tenant)
        known.num_running = max(0, known.num_running - 1)
        if turn.num_blocks:
            known.num_blocks = turn.num_blocks
        if known.num_running:
            return known
        if known.run is not None:
            known.run.ended(now)
            known.run = None
        kind = _KINDS.get(turn.reason, Kind.OTHER)
        self._of(known).hazards.ended(kind, sub_agent=bool(known.parent))
        known.ended(kind)
        known.end_open = kind is Kind.OPEN
        self._begin(known, self._signs(known, self._kind(known, kind), turn.tools), now)
        if kind is Kind.STOP and not known.answers_in_between:
            self._child_ended(known, now)
        return known

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        known = self.memory.get(stream)
        if known is None:
            return
        self._count_silent(known.tenant, now)
        if known.idle is None or not known.end_open:
            return
        kind = _KINDS.get(reason, Kind.OTHER)
        known.end_open = kind is Kind.OPEN
        self._of(known).hazards.ended(Kind.OPEN, sub_agent=bool(known.parent), times=-1.0)
        self._of(known).hazards.ended(kind, sub_agent=bool(known.parent))
        known.judged(kind)
        if known.idle.signs.kind is not Kind.JOINED or kind not in _WAITS:
            known.idle.judged(self._signs(known, self._kind(known, kind), tools))
            self._tell(known, now)
        if kind is Kind.STOP and not known.answers_in_between:
            self._child_ended(known, now)

    def _kind(self, known: Known, kind: Kind) -> Kind:
        if known.awaited or (known.children and kind in _WAITS):
            return Kind.WAITING
        return Kind.DONE if kind is Kind.STOP and known.parent and not known.answers_in_between else kind

    def hinted(self, stream: str, hint: Hint, now: float) -> bool:
        """Whether anything is known of the stream."""
        known = self.memory.get(stream)
        if known is None:
            return False
        self._count_silent(known.tenant, now)
        if hint.kind == "children":
            self._told_children(known, hint.count, now)
        elif is_evidence(hint):
            kept = () if hint.kind == "release" else known.said
            dropped = (hint.kind, "release")
            known.said = (*(said for said in kept if said[0].kind not in dropped), (hint, now))
            self._tell(known, now)
        if hint.kind == "release":
            self._child_ended(known, now)
        return True

    # -- what follows from them ------------------------------------------------------------------------------------

    def _of(self, known: Known) -> Learned:
        return self._learned.of(known.tenant)

    def _count_silent(self, tenant: str, now: float) -> None:
        for known in self.memory.due(tenant, now):
            for spell in (known.run, known.round, known.idle):
                if spell is not None:
                    spell.count(now)
                    spell.refresh()

    def _signs(self, known: Known, kind: Kind, tools: tuple[str, ...] = ()) -> Signs:
        tool = _slowest(self._of(known).hazards, tools) if kind is Kind.TOOL_CALLS else ""
        pace = known.answer_pace if kind in _ANSWERS else known.pace
        return self._of(known).hazards.signs(kind, tool, pace.level)

    def _begin(self, known: Known, signs: Signs, now: float) -> None:
        known.idle = Spell(now, signs, self._told(known, signs, now))
        self.memory.watch(known, now)

    def _told(self, known: Known, signs: Signs, began_s: float) -> tuple[Told, ...]:
        if not known.said:
            return ()
        trust, curve = self._of(known).trust, signs.usual().curve
        return tuple(trust.told(hint, signs.kind, at_s, curve, max(0.0, at_s - began_s)) for hint, at_s in known.said)

    def _tell(self, known: Known, now: float) -> None:
        for spell in (known.round, known.idle):
            if spell is not None and (known.said or spell.told):
                spell.tell(self._told(known, spell.signs, spell.began_s), now)

    def _child_lives(self, child: Known) -> None:
        parent = self.memory.parent_of(child)
        if parent is None:
            return
        self.memory.add_child(parent, child)
        self._wait(parent)

    def _waiting_for(self, child: Known) -> tuple[str, ...]:
        found: list[str] = []
        parent = self.memory.parent_of(child)
        while parent is not None and parent.name not in found and len(found) < MAX_GENERATIONS:
            found.append(parent.name)
            parent = self.memory.parent_of(parent)
        return tuple(found)

    def _wait(self, parent: Known) -> None:
        """However its turn ended, where a client says so."""
        idle = parent.idle
        if idle is not None and (parent.awaited or idle.signs.kind in _WAITS):
            idle.judged(self._signs(parent, Kind.WAITING))

    def _stops_waiting(self, parent: Known) -> None:
        """It goes on: what does not run has ended, without a word or in one that was not taken for an end."""
        parent.awaited = 0
        for name in list(parent.children):
            child = self.memory.get(name)
            if child is None or not child.num_running:
                del parent.children[name]

    def _child_ended(self, child: Known, now: float) -> None:
        parent = self.memory.parent_of(child)
        if parent is None or child.name not in parent.children:
            return
        if len(parent.children) >= SEVERAL:
            parent.several_s = now
        del parent.children[child.name]
        parent.awaited = max(0, parent.awaited - 1)
        self._join(parent, now)

    def _told_children(self, parent: Known, count: int, now: float) -> None:
        parent.awaited = max(0, count)
        if parent.awaited:
            self._wait(parent)
        else:
            parent.children.clear()
            self._join(parent, now)

    def _join(self, parent: Known, now: float) -> None:
        """The last one it waited for has ended: it comes back about now."""
        idle = parent.idle
        if parent.waits or idle is None or idle.signs.kind is not Kind.WAITING:
            return
        idle.count(now)
        self._begin(parent, self._signs(parent, Kind.JOINED), now)

    # -- looking ---------------------------------------------------------------------------------------------------

    def index(self, known: Known, now: float, generations: int = MAX_GENERATIONS) -> float:
        """What a block of it is worth, in hits per second that it is kept. While its own sub-agents ask for room, a
        parent is worth as much as the most valuable of them: they are not to take the place of the one that waits for
        them. Against others it stands for itself, since it comes back only when the last of them has ended."""
        own = self._own_index(known, now)
        if known.name in self._sheltered and generations:
            live = self.memory.live_children(known)
            most = max((self.index(child, now, generations - 1) for child in live), default=0.0)
            own = max(own, most * TIE)
        return own

    def _own_index(self, known: Known, now: float) -> float:
        if known.idle is not None:
            return known.idle.index(now)
        if known.round is None or known.running is None:
            return self._unknown.index(max(0.0, now - known.seen_s))
        if known.round.told:
            return known.round.index(now)
        return known.running.index(max(0.0, now - known.round.began_s))

    def unknown_index(self, silent_s: float) -> float:
        """Of a stream of which nothing is known."""
        return self._unknown.index(max(0.0, silent_s))

    def recency_s(self, known: Known, last_used_s: float) -> float:
        """When it was last at work; `last_used_s`: of the block asked about. While one of several sub-agents asks for
        room, whoever waits for them is as recent as they are: as the latest of them, and as the last one that ended
        while others lived, or what that one leaves behind, of no use to anybody, would outlast it."""
        return self._latest_s(known, last_used_s) if known.name in self._sheltered else last_used_s

    def _latest_s(self, known: Known, last_used_s: float, generations: int = MAX_GENERATIONS) -> float:
        latest = max(last_used_s, known.several_s + 1.0)
        if len(known.children) >= SEVERAL and generations:
            for child in self.memory.live_children(known):
                latest = max(latest, self._latest_s(child, child.seen_s, generations - 1) + 1.0)
        return latest

    def check(self) -> None:
        self.memory.check()
        self._learned.check()


def _slowest(hazards: Hazards, tools: tuple[str, ...]) -> str:
    """Of several calls the agent waits for all."""
    names = list(dict.fromkeys(tools))[:MAX_JUDGED_TOOLS]
    if len(names) < 2:
        return names[0] if names else ""
    return min(names, key=lambda name: Curve(EDGES_S, hazards.of(Kind.TOOL_CALLS, name).rates()).index(0.0))
