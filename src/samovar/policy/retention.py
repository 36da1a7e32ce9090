"""Which cached block goes first when room is needed.

A policy is one object, the same in engine, tiers, pool and simulator. It only orders victims: it never refuses an
allocation, so retention is a bias and cannot wedge the cache. It has no clock: `now` is in seconds and never decreases.

A *stream* is one conversation: a main agent's or a sub-agent's, never a whole session tree. Return times belong to
streams; kept per session they are far worse than LRU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from samovar.policy.hints import Hint, HintAnswer

EXPIRED = float("-inf")
"""The value of a leaf whose time is over."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A cached block nothing uses and nothing cached depends on: the only kind of block that can be evicted."""

    block: int
    depth_blocks: int
    """Blocks before it in its chain: what a request that wants it has had to match."""
    last_used_s: float
    """When the last request that held it let go."""
    stream: str
    """The stream of that request; "" when nothing is known of it."""
    superseded: bool = False
    """A newer turn of its stream has other tokens in its place."""
    restore_s: float = 1.0
    """Estimated seconds to have it back once it is gone: read from a lower tier, or computed again. Of use only in
    comparison with other leaves of the same index."""


@dataclass(frozen=True, slots=True)
class TurnStart:
    """A request of a stream was admitted."""

    stream: str
    parent: str = ""
    """The stream that spawned it, "" for a main agent or when not known."""
    num_blocks: int = 0
    """Blocks of its prompt that a hit may cover."""
    num_hit_blocks: int = 0
    tenant: str = ""
    """Whose it is: what is learned of one tenant is not to say what another one's blocks are worth."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """It ended. `reason` and `tools` may be known only a moment later (they need the text): then `outcome` follows."""

    stream: str
    num_blocks: int = 0
    """Its full blocks, prompt and output."""
    reason: str = ""
    """"tool_calls", "stop", "length", "abort", "error"; "" when not known (yet)."""
    tools: tuple[str, ...] = ()
    """Names of the tools it calls."""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a policy expects of a stream, for whoever looks."""

    return_in_s: float | None = None
    """Median time until its next turn, None when nothing is expected."""
    until_s: float | None = None
    """The `now` up to which a client or a TTL asked to keep it."""
    why: str = ""
    """In a few words, beside the times above: "called read", "waits for 3 sub-agents", "closed"; "" for nothing."""


class RetentionPolicy(Protocol):
    """Orders leaves. Values are compared at the time of an eviction, since they may change without an event. The value
    of a leaf may depend on its stream, its times, `superseded` and `restore_s`; of blocks of one chain that were let go
    together, only the last is asked about and the others follow."""

    @property
    def name(self) -> str: ...

    @property
    def sample(self) -> int:
        """How many leaves, least recently used first, to compare per eviction; 1 when recency alone decides."""
        ...

    def value(self, leaf: Leaf, now: float) -> float:
        """The leaf with the lowest value goes; equal values go least recently used first. `EXPIRED` says that
        the leaf's time is over, and counts as expired rather than evicted."""
        ...

    def turn_started(self, turn: TurnStart, now: float) -> None: ...

    def turn_ended(self, turn: TurnEnd, now: float) -> None: ...

    def outcome(self, stream: str, reason: str, tools: tuple[str, ...], now: float) -> None:
        """How the stream's last turn ended, once its text has been read."""
        ...

    def hinted(self, stream: str, hint: Hint, now: float) -> HintAnswer:
        """A hint on a stream, whose times count from `now`."""
        ...

    def outlook(self, stream: str, now: float) -> Outlook: ...
