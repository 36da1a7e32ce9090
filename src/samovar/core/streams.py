"""Which conversation a request continues, and what each conversation's last turn looked like.

A stream is one agent's conversation. Clients name sessions, but side calls and sub-agents come under the session's own
name, and many clients name nothing. So a request joins a stream when its prompt continues that stream's last turn:
- of a named session, the stream it has most in common with, if that is at least a quarter of the shorter of the two
  (a compacted history is still the conversation; a side call with the same tools is not);
- of no named session, the one whose last block its prompt holds.
A stream that a request is running for is not continued by another: it forks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from samovar.base.ids import BlockKey
from samovar.base.keys import KEY_BYTES, join_keys, split_keys
from samovar.core.events import Miss
from samovar.core.prefix_index import PrefixIndex

MAX_STREAMS_PER_SESSION = 16
_ENTRY_BYTES = 400
"""What a stream costs beside its keys, so that many tiny turns are bounded too."""
_LEAST_SHARE = 4
"""A turn continues a stream of its session if it has one in this many blocks in common."""


@dataclass(slots=True)
class Stream:
    """`turn` are the keys of its last turn's full blocks, 16 bytes each."""

    name: str
    tenant: str
    session_id: str
    """"" when the client named none."""
    parent: str = ""
    """The stream that waits for it."""
    turn: bytes = b""
    running: int = 0
    ended_s: float = 0.0
    retained_until_s: float | None = None
    released: bool = False
    tails: tuple[BlockKey, ...] = ()
    """Keys by which a request without a session is known to continue it."""

    @property
    def num_blocks(self) -> int:
        return len(self.turn) // KEY_BYTES

    def keys(self) -> list[BlockKey]:
        return split_keys(self.turn)


@dataclass(slots=True)
class Joined:
    """What `Streams.join` found: the stream, and from which block on its last turn was cut off (None: nowhere)."""

    stream: Stream
    cut_at: int | None = None
    reference: bytes = b""
    """The turn that a miss is explained against; b"" for none."""


@dataclass(slots=True)
class Streams:
    """Bounded in bytes; the streams that ended longest ago are forgotten."""

    max_bytes: int = 64 << 20
    _all: OrderedDict[str, Stream] = field(default_factory=OrderedDict)
    _sessions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
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
        grew = True
        while grew:
            more = [s for s in self._all.values() if s.parent in found and s.name not in found]
            found.update((stream.name, stream) for stream in more)
            grew = bool(more)
        return list(found.values())

    def latest(self) -> Iterator[Stream]:
        return reversed(self._all.values())

    # -- a turn begins ---------------------------------------------------------------------------------------------

    def join(self, tenant: str, session_id: str, parent_id: str, keys: Sequence[BlockKey]) -> Joined:
        """The stream that a prompt with `keys` continues or begins; it runs until `ended`."""
        if session_id:
            joined = self._join_session(tenant, session_id, parent_id, keys)
        else:
            joined = self._join_by_tail(tenant, keys)
        joined.stream.running += 1
        joined.stream.released = False
        self._all.move_to_end(joined.stream.name)
        self._shrink()
        return joined

    def _join_session(self, tenant: str, session_id: str, parent_id: str, keys: Sequence[BlockKey]) -> Joined:
        known = self.of_session(tenant, session_id)
        best, most = None, 0
        for stream in known:
            common = common_blocks(stream.turn, keys)
            continues = common * _LEAST_SHARE >= max(1, min(stream.num_blocks, len(keys)))
            if continues and not stream.running and (best is None or common > most):
                best, most = stream, common
        if best is not None:
            return Joined(best, most if most < best.num_blocks else None, best.turn)
        fresh = next((stream for stream in known if not stream.turn and not stream.running), None)
        if fresh is not None:
            return Joined(fresh)
        parent = known[0].name if known else self._main_of(tenant, parent_id)
        reference = next((s.turn for s in reversed(known) if s.turn and not s.running), b"")
        if len(known) >= MAX_STREAMS_PER_SESSION and (idle := [s for s in known[1:] if not s.running]):
            self._forget(min(idle, key=lambda s: s.ended_s))
        return Joined(self._make(tenant, session_id, parent), None, reference)

    def _join_by_tail(self, tenant: str, keys: Sequence[BlockKey]) -> Joined:
        if self._tails:
            for at in range(len(keys) - 1, -1, -1):
                name = self._tails.get(keys[at])
                if name is None:
                    continue
                stream = self._all[name]
                if stream.running or stream.tenant != tenant:
                    break
                cut_at = at + 1 if at + 1 < stream.num_blocks else None
                return Joined(stream, cut_at, stream.turn)
        return Joined(self._make(tenant, "", ""))

    def _main_of(self, tenant: str, session_id: str) -> str:
        known = self._sessions.get((tenant, session_id), ()) if session_id else ()
        return known[0] if known else ""

    def _make(self, tenant: str, session_id: str, parent: str) -> Stream:
        """Names are counted, never drawn: equal calls make equal names. A named session's first stream has its name."""
        self._num_made += 1
        taken = bool(self._sessions.get((tenant, session_id))) or not session_id
        name = f"{tenant}\0{session_id}\0{self._num_made}" if taken else f"{tenant}\0{session_id}"
        stream = self._all[name] = Stream(name, tenant, session_id, parent)
        if session_id:
            self._sessions.setdefault((tenant, session_id), []).append(name)
        self._bytes += _size(stream)
        return stream

    # -- a turn ends -----------------------------------------------------------------------------------------------

    def ended(self, stream: Stream, keys: Sequence[BlockKey], num_prompt_blocks: int, now: float) -> None:
        """A turn's full blocks; none when nothing of it was computed, which says nothing of where the stream stands."""
        assert stream.running > 0
        stream.running -= 1
        stream.ended_s = now
        if keys and self._all.get(stream.name) is stream:
            self._bytes -= _size(stream)
            stream.turn = join_keys(keys)
            self._set_tails(stream, keys, num_prompt_blocks)
            self._bytes += _size(stream)
        if self._all.get(stream.name) is stream:
            self._all.move_to_end(stream.name)
        self._shrink()

    def _set_tails(self, stream: Stream, keys: Sequence[BlockKey], num_prompt_blocks: int) -> None:
        """The last block, and the prompt's last, for clients whose history differs a little from what was generated."""
        self._drop_tails(stream)
        if stream.session_id:
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
        del self._all[stream.name]
        self._bytes -= _size(stream)
        if stream.session_id:
            names = self._sessions[stream.tenant, stream.session_id]
            names.remove(stream.name)
            if not names:
                del self._sessions[stream.tenant, stream.session_id]

    def check(self) -> None:
        assert self._bytes == sum(_size(stream) for stream in self._all.values())
        named = [name for names in self._sessions.values() for name in names]
        assert sorted(named) == sorted(s.name for s in self._all.values() if s.session_id)
        for key, name in self._tails.items():
            assert key in self._all[name].tails
        assert all(stream.running >= 0 for stream in self._all.values())


def explain(reference: bytes, keys: Sequence[BlockKey], hit: int, limit: int, index: PrefixIndex) -> Miss:
    """Why a prompt with `keys`, of which `hit` of at most `limit` blocks were found, missed the next one. `reference`:
    its stream's last turn."""
    if hit >= limit:
        return Miss("none")
    gone = index.evicted.get(keys[hit])
    if gone is not None:
        reason = "expired" if gone.expired else "evicted"
        return Miss(reason, block=hit, at_s=gone.at_s, for_request=gone.for_request)
    if not reference:
        return Miss("cold" if hit == 0 else "new", block=hit)
    same = common_blocks(reference, keys)
    if same > hit:
        # Evicted so long ago that the index forgot when.
        return Miss("evicted", block=hit)
    if hit == same < len(reference) // KEY_BYTES:
        return Miss("cut", block=same)
    return Miss("new", block=hit)


def _size(stream: Stream) -> int:
    return len(stream.turn) + len(stream.name) + _ENTRY_BYTES


def common_blocks(turn: bytes, keys: Sequence[BlockKey]) -> int:
    """Leading keys in common. Equal keys have equal chains before them, so this is a bisection."""
    low, high = 0, min(len(turn) // KEY_BYTES, len(keys))
    while low < high:
        mid = (low + high) // 2
        if turn[mid * KEY_BYTES : (mid + 1) * KEY_BYTES] == keys[mid]:
            low = mid + 1
        else:
            high = mid
    return low
