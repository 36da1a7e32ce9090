"""One agent's conversation, and whether a prompt continues it.

Clients name sessions, but side calls and sub-agents come under the session's own name, and they begin with the same
tools and instructions. So of the idle streams of its session a prompt
- continues the one whose first prompt it begins with, or all of whose last turn but an eighth it has: an edited message
  and a history that is rendered anew are still the conversation;
- may be what became of one that it has a quarter of the shorter of the two in common with: a compaction looks like a
  side call or a sub-agent until there is a next turn, and which of the two goes on tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from samovar.base.ids import BlockKey
from samovar.base.keys import KEY_BYTES, split_keys

_LEAST_SHARE = 4
"""A prompt may replace a stream if it has one in this many blocks in common with it."""
_MOST_CUT = 8
"""A prompt that cuts off at most one in this many blocks continues a stream, whatever it begins with."""


@dataclass(slots=True)
class Stream:
    """`turn` are the keys of its last turn's full blocks, 16 bytes each."""

    name: str
    tenant: str
    session_id: str
    """"" when the client named none."""
    parent: str = ""
    """The stream that waits for it."""
    by_tail: bool = False
    """Continued by whoever has its last block: others may come under the same name."""
    turn: bytes = b""
    first_blocks: int = 0
    """Full blocks of its first prompt, or of the first one since it was not known for certain that it goes on."""
    origin: str = ""
    """The stream that this one may be a newer form of: its next turn tells."""
    running: int = 0
    ended_s: float = 0.0
    awaits: tuple[str, ...] = ()
    """The tools that its last turn called: the next one has their results."""
    forked: bool = False
    """Another stream that may be a newer form of it has begun since its last turn."""
    retained_until_s: float | None = None
    released: bool = False
    demoted: bool = False
    """Not wanted on the device until its next turn."""
    tails: tuple[BlockKey, ...] = ()
    """Keys by which a request is known to continue it, if it is found by its tail."""

    @property
    def num_blocks(self) -> int:
        return len(self.turn) // KEY_BYTES

    def keys(self) -> list[BlockKey]:
        return split_keys(self.turn)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Blocks that a newer turn of their stream has other tokens in the place of."""

    stream: str
    first: int
    """Position of the first of them in its chain."""
    keys: list[BlockKey]


@dataclass(frozen=True, slots=True)
class Joined:
    """The stream that a prompt continues or begins."""

    stream: Stream
    orphans: tuple[Orphans, ...] = ()
    """What it cuts off, for certain."""
    reference: bytes = b""
    """The turn that a miss is explained against; b"" for none."""


@dataclass(frozen=True, slots=True)
class Continued:
    stream: Stream
    common: int
    """Leading blocks of its last turn that the prompt has."""
    surely: bool
    """The prompt begins with the stream's first one."""


def continued(idle: Iterable[Stream], keys: Sequence[BlockKey]) -> Continued | None:
    """Of several the one that the prompt surely continues, then the one it has most in common with."""
    best: Continued | None = None
    best_rank: tuple[bool, int, int] | None = None
    for stream in idle:
        common = common_blocks(stream.turn, keys)
        cut = stream.num_blocks - common
        # A template may render the end of a prompt, where the answer begins, in another way afterwards.
        surely = common >= max(1, stream.first_blocks - 1)
        if not common or not (surely or cut * _MOST_CUT <= stream.num_blocks):
            continue
        rank = (surely, common, -cut)
        if best_rank is None or rank > best_rank:
            best, best_rank = Continued(stream, common, surely), rank
    return best


def origin_of(idle: Iterable[Stream], keys: Sequence[BlockKey]) -> Stream | None:
    """Of the streams that a prompt may be a newer form of, the one it has most in common with."""
    best, most = None, 0
    for stream in idle:
        common = common_blocks(stream.turn, keys)
        if common > most and common * _LEAST_SHARE >= min(stream.num_blocks, len(keys)):
            best, most = stream, common
    return best


def awaited(reason: str, tools: tuple[str, ...]) -> tuple[str, ...]:
    """What a stream waits for whose turn ended so. A tool without a name is one, too."""
    return (tools or ("",)) if reason == "tool_calls" else ()


def cut_off(stream: Stream, common: int) -> tuple[Orphans, ...]:
    """What is left of its last turn behind the first `common` blocks."""
    if common >= stream.num_blocks:
        return ()
    return (Orphans(stream.name, common, split_keys(stream.turn[common * KEY_BYTES :])),)


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
