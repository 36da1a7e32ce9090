"""What each session's last turn looked like, to tell why a prompt missed the cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from samovar.base.ids import BlockKey
from samovar.base.keys import KEY_BYTES, join_keys
from samovar.core.events import Miss
from samovar.core.prefix_index import PrefixIndex

_ENTRY_BYTES = 200
"""What an entry costs beside its text, so that many tiny turns are bounded too."""


class SessionMemory:
    """The keys of each stream's latest turn, bounded in bytes; the least recently seen streams are forgotten."""

    __slots__ = ("_bytes", "_max_bytes", "_turns")

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._turns: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._max_bytes = max_bytes

    def remember(self, stream: str, keys: Sequence[BlockKey]) -> None:
        if not stream:
            return
        if stream in self._turns:
            self._bytes -= _size(stream, self._turns.pop(stream))
        joined = join_keys(keys)
        self._turns[stream] = joined
        self._bytes += _size(stream, joined)
        while self._bytes > self._max_bytes:
            self._bytes -= _size(*self._turns.popitem(last=False))

    def explain(self, stream: str, keys: Sequence[BlockKey], hit: int, limit: int, index: PrefixIndex) -> Miss:
        """Why a prompt with `keys`, of which `hit` of at most `limit` blocks were found, missed the next one."""
        if hit >= limit:
            return Miss("none")
        gone = index.evicted.get(keys[hit])
        if gone is not None:
            reason = "expired" if gone.expired else "evicted"
            return Miss(reason, block=hit, at_s=gone.at_s, for_request=gone.for_request)
        turn = self._turns.get(stream) if stream else None
        if turn is None:
            return Miss("cold" if hit == 0 else "new", block=hit)
        same = _common_blocks(turn, keys)
        if same > hit:
            # Evicted so long ago that the index forgot when.
            return Miss("evicted", block=hit)
        if hit == same < len(turn) // KEY_BYTES:
            return Miss("cut", block=same)
        return Miss("new", block=hit)


def _size(stream: str, turn: bytes) -> int:
    return len(turn) + len(stream) + _ENTRY_BYTES


def _common_blocks(turn: bytes, keys: Sequence[BlockKey]) -> int:
    """Leading keys in common. Equal keys have equal chains before them, so this is a bisection."""
    low, high = 0, min(len(turn) // KEY_BYTES, len(keys))
    while low < high:
        mid = (low + high) // 2
        if turn[mid * KEY_BYTES : (mid + 1) * KEY_BYTES] == keys[mid]:
            low = mid + 1
        else:
            high = mid
    return low
