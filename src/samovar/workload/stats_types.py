"""The figures of a set of sessions, as `trace stats` shows and writes them."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.workload.kv_size import KVSize
from samovar.workload.spread import Spread


@dataclass(frozen=True, slots=True)
class Totals:
    sessions: int
    distinct_sessions: int
    """Without exact copies of others."""
    calls: int
    input_tokens: int
    output_tokens: int
    new_blocks_tokens: int
    """Room of all distinct blocks: what a cache must hold to lose nothing."""
    unchained_blocks: int
    """Not 0: the trace's ids are not prefix-chained and its hit rates are lower bounds."""
    unnamed_tokens: int = 0
    """Tokens of full blocks that the trace gives no id; they count as new, so hit rates are lower bounds."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Hit rates of an infinite cache, as shares."""

    tokens: float
    """Tokens of prompts found / tokens of prompts. Sessions share only what their ids say."""
    blocks: float
    """Blocks found / blocks: AgentX's figure."""
    across_sessions: float
    """Upper bound of `tokens` when sessions share tool definitions and system prompts: all but the first find them."""
    per_session: Spread


@dataclass(frozen=True, slots=True)
class Miss:
    cause: str
    calls: int
    tokens: int
    share: float
    """Of all tokens that an infinite cache misses."""


@dataclass(frozen=True, slots=True)
class SubAgents:
    sessions_marked: int
    sessions_any: int
    """With marked sub-agents or with ones told from the prompts."""
    marked: int
    unmarked: int
    side_calls: int
    per_session: Spread
    """Over the sessions that have any."""
    calls: Spread
    duration_s: Spread
    at_once: Spread
    input_tokens: Spread
    output_tokens: Spread


@dataclass(frozen=True, slots=True)
class Times:
    gap_s: Spread
    """End of a turn to the start of the stream's next."""
    think_after_tool_s: Spread
    think_after_text_s: Spread
    """As the trace states them, by what the turn brought."""
    think_over_10_s: float
    think_over_60_s: float
    think_over_300_s: float
    """Shares of stated think times."""
    api_s: Spread
    session_s: Spread


@dataclass(frozen=True, slots=True)
class KeepWarm:
    survive_s: tuple[float, ...]
    hit: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    lanes: int
    """Groups at a time, each at its recorded times; the next starts when one ends. Never more than there are."""
    groups: int
    """Sessions whose files share nothing each are one; those of one file are one together, on that file's clock."""
    tokens: tuple[int, ...]
    bytes: tuple[int, ...]
    lru: tuple[float, ...]
    optimal: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TraceStats:
    totals: Totals
    skipped: tuple[str, ...]
    ceiling: Ceiling
    misses: tuple[Miss, ...]
    turns: Spread
    """Model calls per session, sub-agents' included."""
    main_turns: Spread
    input_tokens: Spread
    output_tokens: Spread
    new_tokens: Spread
    """Per call that is not a stream's first: tokens an infinite cache does not have."""
    peak_tokens: Spread
    """Per session: the longest prompt with its answer."""
    distinct_tokens: Spread
    """Per session: room of its distinct blocks."""
    kv: KVSize
    kv_peak_bytes: Spread
    kv_distinct_bytes: Spread
    subagents: SubAgents
    times: Times
    keep_warm: KeepWarm
    capacity: Capacity
