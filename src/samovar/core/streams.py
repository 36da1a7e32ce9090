"""The conversations that are remembered, and which of them a request joins.

- In a named session it is found by what the prompts have in common (`core.stream`).
- Without one, and under a name that many conversations share, it is the one whose last block the prompt holds.
- A stream that a request is running for is not continued by another: it forks.
Bounded in bytes: the streams that ended longest ago are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from samovar.base.ids import BlockKey
from samovar.base.keys import join_keys
from samovar.core.spawners import Spawners
from samovar.core.stream import Continued, Joined, Stream, common_blocks, continued, cut_off, origin_of
from samovar.policy.tenants import PerTenant

MAX_STREAMS_PER_SESSION = 16
MAX_STREAMS_PER_SHARED_SESSION = 256
_ENTRY_BYTES = 400
"""What a stream costs beside its keys, so that many tiny turns are bounded too."""


@dataclass(slots=True)
class Streams:
    max_bytes: int = 64 << 20
    spawners: PerTenant[Spawners] = field(default_factory=lambda: PerTenant(Spawners))
    _all: OrderedDict[str, Stream] = field(default_factory=OrderedDict)
    _sessions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _children: dict[str, dict[str, None]] = field(default_factory=dict)
    """By parent, which may be forgotten by now."""
    _retained: dict[str, dict[str, None]] = field(default_factory=dict)
    """By tenant: streams that somebody asked to keep, some of them no longer."""
    _tails: dict[BlockKey, str] = field(default_factory=dict)
    _bytes: int = 0
    _num_made: int = 0

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> Stream | None:
        return self._all.get(name)

    def of_session(self, tenant: str, session_id: str) -> list[Stream]:
        """The main agent's first."""
        return [self._all[name] for name in self._sessions.get((tenant, session_id), ())]

    def with_descendants(self, streams: Sequence[Stream]) -> list[Stream]:
        """These and all that some of them waits for."""
        found = {stream.name: stream for stream in streams}
        todo = list(found)
        while todo:
            for name in self._children.get(todo.pop(0), ()):
                if name not in found:
                    found[name] = self._all[name]
                    todo.append(name)
        return list(found.values())

    def latest(self) -> Iterator[Stream]:
        return reversed(self._all.values())

    # -- a turn begins ---------------------------------------------------------------------------------------------

    def join(
        self, tenant: str, session_id: str, parent_id: str, keys: Sequence[BlockKey], *, shared: bool = False
    ) -> Joined:
        """The stream that a prompt with `keys` continues or begins; it runs until `ended`. `shared`: the session's name
        is that of many conversations."""
        if session_id and not shared:
            joined = self._join_session(tenant, session_id, parent_id, keys)
        else:
            joined = self._join_by_tail(tenant, session_id, parent_id, keys)
        stream = joined.stream
        stream.running += 1
        stream.released = stream.demoted = False
        if stream.retained_until_s is not None:
            self.retain(stream, None)
        self._all.move_to_end(stream.name)
        self._shrink()
        return joined

    def likely(self, tenant: str, session_id: str, keys: Sequence[BlockKey], *, shared: bool = False) -> Stream | None:
        """The stream that `join` would continue, were it called now."""
        if not session_id or shared:
            return self._by_tail(tenant, session_id, keys)
        found = continued(self._idle(self.of_session(tenant, session_id)), keys)
        return found.stream if found is not None else None

    def _join_session(self, tenant: str, session_id: str, parent_id: str, keys: Sequence[BlockKey]) -> Joined:
        known = self.of_session(tenant, session_id)
        idle = self._idle(known)
        found = continued(idle, keys)
        if found is not None:
            return self._continue(found, known, keys)
        fresh = next((stream for stream in idle if not stream.turn), None)
        if fresh is not None:
            return Joined(fresh)
        origin = origin_of(idle, keys)
        reference = origin.turn if origin is not None else next((s.turn for s in reversed(idle)), b"")
        parent = known[0].name if known else self._main_of(tenant, parent_id)
        self._bound(known, MAX_STREAMS_PER_SESSION)
        if origin is None:
            return Joined(self._make(tenant, session_id, parent), (), reference)
        origin.forked = True
        waits = self._waits(origin)
        stream = self._make(tenant, session_id, origin.name if waits else origin.parent)
        stream.origin = origin.name
        return Joined(stream, (), reference)

    def _continue(self, found: Continued, known: list[Stream], keys: Sequence[BlockKey]) -> Joined:
        stream, reference = found.stream, found.stream.turn
        for other in known:
            if other.origin == stream.name:
                other.origin = ""  # this one goes on, so the other is not what became of it
        self._returned(stream)
        orphans = cut_off(stream, found.common)
        origin = self._all.get(stream.origin)
        if found.surely:
            stream.origin = ""
            if origin is not None and not origin.running and not self._waits(origin):
                orphans = (*cut_off(origin, common_blocks(origin.turn, keys)), *orphans)
                stream = self._replace(origin, stream)
        else:
            stream.first_blocks = 0
        return Joined(stream, orphans, reference)

    def _waits(self, stream: Stream) -> bool:
        """Whether it called what begins sub-agents, as far as its own tenant's streams have shown."""
        return self.spawners.of(stream.tenant).among(stream.awaits)

    def _returned(self, stream: Stream) -> None:
        if stream.awaits:
            self.spawners.of(stream.tenant).returned(stream.awaits, forked=stream.forked)
        stream.awaits, stream.forked = (), False

    def _replace(self, old: Stream, new: Stream) -> Stream:
        """`new` turned out to be the conversation of `old`, which goes on under its own name."""
        self._bytes += len(new.turn) - len(old.turn)
        old.turn, old.first_blocks = new.turn, new.first_blocks
        old.awaits, old.forked = (), False
        for name in list(self._children.get(new.name, ())):
            self._set_parent(self._all[name], old.name)
        self._forget(new)
        return old

    def _join_by_tail(self, tenant: str, session_id: str, parent_id: str, keys: Sequence[BlockKey]) -> Joined:
        stream = self._by_tail(tenant, session_id, keys)
        if stream is not None:
            return Joined(stream, cut_off(stream, common_blocks(stream.turn, keys)), stream.turn)
        if session_id:
            self._bound(self.of_session(tenant, session_id), MAX_STREAMS_PER_SHARED_SESSION)
        stream = self._make(tenant, session_id, self._main_of(tenant, parent_id))
        stream.by_tail = True
        return Joined(stream)

    def _by_tail(self, tenant: str, session_id: str, keys: Sequence[BlockKey]) -> Stream | None:
        if self._tails:
            for at in range(len(keys) - 1, -1, -1):
                name = self._tails.get(keys[at])
                if name is None:
                    continue
                stream = self._all[name]
                if stream.running or (stream.tenant, stream.session_id) != (tenant, session_id):
                    break
                return stream
        return None

    def _idle(self, streams: list[Stream]) -> list[Stream]:
        return [stream for stream in streams if not stream.running]

    def _bound(self, known: list[Stream], most: int) -> None:
        """Before one more of a session; its first one, the main agent's, stays."""
        if len(known) >= most and (idle := self._idle(known[1:])):
            self._forget(min(idle, key=lambda s: s.ended_s))

    def _main_of(self, tenant: str, session_id: str) -> str:
        known = self._sessions.get((tenant, session_id), ()) if session_id else ()
        return known[0] if known else ""

    def _make(self, tenant: str, session_id: str, parent: str) -> Stream:
        """Names are counted, never drawn: equal calls make equal names. A named session's first stream has its name."""
        self._num_made += 1
        taken = bool(self._sessions.get((tenant, session_id))) or not session_id
        name = f"{tenant}\0{session_id}\0{self._num_made}" if taken else f"{tenant}\0{session_id}"
        stream = self._all[name] = Stream(name, tenant, session_id)
        self._set_parent(stream, parent)
        if session_id:
            self._sessions.setdefault((tenant, session_id), []).append(name)
        self._bytes += _size(stream)
        return stream

    def _set_parent(self, stream: Stream, parent: str) -> None:
        siblings = self._children.get(stream.parent, {})
        siblings.pop(stream.name, None)
        if not siblings:
            self._children.pop(stream.parent, None)
        stream.parent = parent
        if parent:
            self._children.setdefault(parent, {})[stream.name] = None

    # -- a turn ends -----------------------------------------------------------------------------------------------

    def ended(self, stream: Stream, keys: Sequence[BlockKey], num_prompt_blocks: int, now: float) -> int:
        """A turn's full blocks. Those that are no more than a part of the turn before it, as after a request that was
        stopped early, say nothing of where the stream stands. Returns how many leading ones the turn before it had."""
        assert stream.running > 0
        stream.running -= 1
        stream.ended_s = now
        common = common_blocks(stream.turn, keys)
        remembered = self._all.get(stream.name) is stream
        if len(keys) > common or len(keys) == stream.num_blocks > 0:
            stream.first_blocks = stream.first_blocks or num_prompt_blocks
            if remembered:
                self._bytes -= _size(stream)
                stream.turn = join_keys(keys)
                self._set_tails(stream, keys, num_prompt_blocks)
                self._bytes += _size(stream)
        if remembered:
            self._all.move_to_end(stream.name)
        self._shrink()
        return common

    def _set_tails(self, stream: Stream, keys: Sequence[BlockKey], num_prompt_blocks: int) -> None:
        """The last block, and the prompt's last, for clients whose history differs a little from what was generated."""
        self._drop_tails(stream)
        if not stream.by_tail:
            return
        ends = {len(keys), min(num_prompt_blocks, len(keys))} - {0}
        stream.tails = tuple(keys[end - 1] for end in sorted(ends))
        for key in stream.tails:
            self._tails[key] = stream.name

    def _drop_tails(self, stream: Stream) -> None:
        for key in stream.tails:
            if self._tails.get(key) == stream.name:
                del self._tails[key]
        stream.tails = ()

    def _shrink(self) -> None:
        while self._bytes > self.max_bytes:
            idle = next((stream for stream in self._all.values() if not stream.running), None)
            if idle is None:
                return
            self._forget(idle)

    def _forget(self, stream: Stream) -> None:
        self._drop_tails(stream)
        self.retain(stream, None)
        self._set_parent(stream, "")
        del self._all[stream.name]
        self._bytes -= _size(stream)
        if stream.session_id:
            names = self._sessions[stream.tenant, stream.session_id]
            names.remove(stream.name)
            if not names:
                del self._sessions[stream.tenant, stream.session_id]

    # -- what somebody asked to keep -------------------------------------------------------------------------------

    def retain(self, stream: Stream, until_s: float | None) -> None:
        """None: no longer."""
        stream.retained_until_s = until_s
        names = self._retained.setdefault(stream.tenant, {})
        if until_s is None:
            names.pop(stream.name, None)
        elif self._all.get(stream.name) is stream:
            names[stream.name] = None
        if not names:
            del self._retained[stream.tenant]

    def retained_blocks(self, tenant: str, now: float, *, besides: Stream | None) -> int:
        """Of the tenant's other streams."""
        names = self._retained.get(tenant, {})
        kept = [stream for name in names if ((stream := self._all[name]).retained_until_s or 0.0) > now]
        if len(kept) < len(names):
            self._retained[tenant] = {stream.name: None for stream in kept}
        return sum(stream.num_blocks for stream in kept if stream is not besides)

    def check(self) -> None:
        self.spawners.check()
        assert self._bytes == sum(_size(stream) for stream in self._all.values())
        named = [name for names in self._sessions.values() for name in names]
        assert sorted(named) == sorted(s.name for s in self._all.values() if s.session_id)
        for key, name in self._tails.items():
            assert key in self._all[name].tails and self._all[name].by_tail
        assert all(stream.running >= 0 for stream in self._all.values())
        pairs = sorted((parent, name) for parent, names in self._children.items() for name in names)
        assert pairs == sorted((s.parent, s.name) for s in self._all.values() if s.parent)
        for tenant, names in self._retained.items():
            assert all(self._all[name].tenant == tenant for name in names)
        kept = {name for names in self._retained.values() for name in names}
        assert all(name in self._all and self._all[name].retained_until_s is not None for name in kept)


def _size(stream: Stream) -> int:
    return len(stream.turn) + len(stream.name) + _ENTRY_BYTES
