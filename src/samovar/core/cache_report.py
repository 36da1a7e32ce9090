"""What the engine remembers of conversations and where their blocks are, for whoever looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import overload

from samovar.base.ids import BlockKey
from samovar.base.keys import KEY_BYTES
from samovar.core.board import Board
from samovar.core.stats import CacheReport, SessionReport, TierReport
from samovar.core.stream import Stream

MAX_SESSIONS = 200
"""Of one tenant: nobody's conversations push out another's."""
MAX_ALL_SESSIONS = 1000


class KeyView(Sequence[BlockKey]):
    """The keys in one string, cut out when asked for: a look-up needs a few of thousands."""

    __slots__ = ("_joined",)

    def __init__(self, joined: bytes) -> None:
        self._joined = joined

    def __len__(self) -> int:
        return len(self._joined) // KEY_BYTES

    @overload
    def __getitem__(self, at: int) -> BlockKey: ...
    @overload
    def __getitem__(self, at: slice) -> KeyView: ...
    def __getitem__(self, at: int | slice) -> BlockKey | KeyView:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            assert step == 1
            return KeyView(self._joined[start * KEY_BYTES : stop * KEY_BYTES])
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        return self._joined[at * KEY_BYTES : (at + 1) * KEY_BYTES]


@dataclass(frozen=True, slots=True)
class Recovered:
    """A conversation that a tier had when the engine started."""

    stream: str
    """The name that it had before and will have again (`core.stream_names`)."""
    keys: bytes
    """Of the blocks that were there, 16 bytes each."""
    found_s: float

    @property
    def tenant(self) -> str:
        return self.stream.partition("\0")[0]

    @property
    def session_id(self) -> str:
        return self.stream.partition("\0")[2]


class Dormant:
    """Conversations that a tier had when the engine started, until they have a turn again or nothing of them is left.
    A report looks at no more of them than it can list."""

    __slots__ = ("_num", "_tenants")

    def __init__(self, recovered: Iterable[Recovered] = ()) -> None:
        """`recovered`: the latest first."""
        self._tenants: dict[str, dict[str, tuple[int, Recovered]]] = {}
        """By tenant and stream, with the place in the order of all."""
        self._num = 0
        for place, one in enumerate(recovered):
            streams = self._tenants.setdefault(one.tenant, {})
            if one.stream not in streams:
                streams[one.stream] = (place, one)
                self._num += 1

    def __len__(self) -> int:
        return self._num

    def went_on(self, tenant: str, session_id: str) -> None:
        """It had a turn: what becomes of it the streams know, also when they have forgotten it."""
        self._drop(tenant, f"{tenant}\0{session_id}")

    def gone(self, one: Recovered) -> None:
        """No tier has anything of it."""
        self._drop(one.tenant, one.stream)

    def latest(self, places: _Places) -> list[Recovered]:
        """As many as there are places for, the latest first; of very many tenants only some."""
        some = (islice(streams.values(), room) for name, streams in self._tenants.items() if (room := places.of(name)))
        in_order = merge(*islice(some, places.left))
        return [one for _, one in islice(in_order, places.left)]

    def _drop(self, tenant: str, stream: str) -> None:
        streams = self._tenants.get(tenant)
        if streams is None or streams.pop(stream, None) is None:
            return
        self._num -= 1
        if not streams:
            del self._tenants[tenant]


class _Places:
    """How many more may be listed."""

    __slots__ = ("_taken", "left")

    def __init__(self) -> None:
        self.left = MAX_ALL_SESSIONS
        self._taken: Counter[str] = Counter()

    def of(self, tenant: str) -> int:
        return min(self.left, MAX_SESSIONS - self._taken[tenant])

    def take(self, tenant: str) -> bool:
        """Whether there is one for this tenant."""
        if not self.of(tenant):
            return False
        self.left -= 1
        self._taken[tenant] += 1
        return True


def cache_report(board: Board, now: float, dormant: Dormant) -> CacheReport:
    """Drops those of the `dormant` that turn out to be gone."""
    kv, places = board.kv, _Places()
    device = TierReport(
        "device",
        num_blocks=kv.pool.num_blocks,
        num_used_blocks=kv.pool.num_blocks - kv.pool.num_free,
        block_bytes=board.config.block_bytes,
        physical_bytes=kv.pool.num_blocks * board.config.block_bytes,
        capacity_bytes=kv.pool.num_blocks * board.config.block_bytes,
        promoted_blocks=board.counters.loaded_blocks,
        evicted_blocks=kv.index.num_evicted,
    )
    below = board.connector.report() if board.connector is not None else ()
    shown = [
        _session(board, stream, now)
        for stream in board.streams.latest()
        if (stream.num_blocks or stream.running) and places.take(stream.tenant)
    ]
    shown += _silent(board, dormant, places, now)
    count = len(board.streams) + len(dormant)
    return CacheReport(board.policy.name, board.config.block_tokens, (device, *below), tuple(shown), count)


def _tokens_by_tier(board: Board, keys: KeyView) -> dict[str, int]:
    """Leading ones of the chain."""
    blocks = {"device": board.kv.index.match(keys, 0, len(keys))}
    if board.connector is not None:
        blocks |= board.connector.blocks_of(keys)
    return {tier: count * board.config.block_tokens for tier, count in blocks.items()}


def _silent(board: Board, dormant: Dormant, places: _Places, now: float) -> list[SessionReport]:
    shown: list[SessionReport] = []
    for one in dormant.latest(places):
        keys = KeyView(one.keys)
        tiers = _tokens_by_tier(board, keys)
        if not any(tiers.values()):
            dormant.gone(one)
            continue
        report = SessionReport(
            session_id=one.session_id,
            tenant=one.tenant,
            stream=one.session_id,
            num_tokens=len(keys) * board.config.block_tokens,
            tiers=tiers,
            idle_s=max(0.0, now - one.found_s),
            why="found at the start, no turn since",
        )
        shown.append(report)
    return shown


def _session(board: Board, stream: Stream, now: float) -> SessionReport:
    keys = KeyView(stream.turn)
    outlook = board.policy.outlook(stream.name, now)
    parent = board.streams.get(stream.parent)
    until = [s for s in (outlook.until_s, stream.retained_until_s) if s is not None]
    return SessionReport(
        session_id=stream.session_id,
        tenant=stream.tenant,
        parent_session_id=parent.session_id if parent is not None else "",
        stream=stream.name.rpartition("\0")[2],
        num_tokens=len(keys) * board.config.block_tokens,
        tiers=_tokens_by_tier(board, keys),
        running=stream.running > 0,
        idle_s=0.0 if stream.running else max(0.0, now - stream.ended_s),
        return_in_s=outlook.return_in_s,
        kept_for_s=max(0.0, max(until) - now) if until else None,
        why="released" if stream.released else outlook.why,
    )
