"""The answer of `GET /v1/cache`, field by field. Names and meanings are stable: fields are added, never changed.

The descriptions here are the ones of the OpenAPI document; `docs/observing.md` shows them in use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]


class TierState(msgspec.Struct, frozen=True, kw_only=True):
    """One tier. What is counted counts from the engine's start."""

    tier: Annotated[str, Meta(description='"device", "host" or "disk".')]
    capacity_blocks: Count
    used_blocks: Annotated[int, Meta(ge=0, description="With content, or being filled.")]
    block_bytes: Count
    capacity_bytes: Count
    physical_bytes: Annotated[int, Meta(ge=0, description="Memory or disk space taken now.")]
    hit_tokens: Annotated[int, Meta(ge=0, description="Cached prompt tokens that were found here.")]
    loaded_blocks: Annotated[int, Meta(ge=0, description="Copies taken up from it.")]
    stored_blocks: Annotated[int, Meta(ge=0, description="That came into it from the tier above.")]
    promoted_blocks: Annotated[int, Meta(ge=0, description="That came into it from a tier below.")]
    recovered_blocks: Annotated[
        int, Meta(ge=0, description="Found in it at the start, or again once what they follow was written once more.")
    ]
    evicted_blocks: Count
    forgotten_blocks: Annotated[
        int, Meta(ge=0, description="Not findable any more without having made room: damaged, or behind such a one.")
    ]
    failed_blocks: Annotated[
        dict[str, Count], Meta(description="Blocks that could not be loaded, stored or verified, by reason.")
    ]
    not_yet_durable_blocks: Annotated[
        int, Meta(ge=0, description="Blocks that are to survive a restart and would not do so now.")
    ]
    bytes_per_s: Annotated[float | None, Meta(description="Measured, of loads from it; null before the first.")]
    suspended: Annotated[bool, Meta(description="It did not answer in time: nothing is asked of it but probes.")]
    suspensions: Annotated[int, Meta(ge=0, description="How often that began.")]


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    running: Count
    waiting: Count
    preemptions: Count


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Counted from the engine's start. `prompt` = `cached` + `computed`, counted at a request's first token."""

    prompt: Count
    cached: Annotated[int, Meta(ge=0, description="The sum of `hits.by_tier`.")]
    computed: Count
    recomputed: Annotated[int, Meta(ge=0, description="Computed again after a preemption or a failed step.")]
    generated: Count
    shared: Annotated[
        int, Meta(ge=0, description="Part of `cached`: a sibling was computing them when the request came.")
    ]


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    rate: Annotated[float | None, Meta(description="Cached / prompt tokens, 0 to 1; null before the first prompt.")]
    rate_ceiling: Annotated[
        float | None, Meta(description="What an infinite cache would have given, 0 to 1; null likewise.")
    ]
    ceiling_tokens: Count
    by_tier: Annotated[dict[str, Count], Meta(description="Cached tokens by the tier they were found in.")]


class Misses(msgspec.Struct, frozen=True, kw_only=True):
    requests: Count
    tokens: Annotated[int, Meta(ge=0, description="Prompt tokens that had to be computed because of it.")]


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks on their way to the device."""

    loaded_blocks: Count
    prefetched_blocks: Annotated[int, Meta(ge=0, description="Part of those: before a request asked for them.")]
    wasted_blocks: Annotated[
        int, Meta(ge=0, description="Loaded, and evicted or given up before any request used them.")
    ]
    declined_blocks: Annotated[
        int, Meta(ge=0, description="Found in a tier and computed all the same, which was estimated to be faster.")
    ]
    failed_blocks: Count
    failed_by_reason: dict[str, Count]


class Evictions(msgspec.Struct, frozen=True, kw_only=True):
    blocks: Annotated[int, Meta(ge=0, description="Off the device; each tier counts its own.")]
    regretted_tokens: Annotated[
        int, Meta(ge=0, description="Prompt tokens computed because an eviction had taken them.")
    ]


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's conversation: a main agent's or a sub-agent's."""

    stream: Annotated[str, Meta(description="Tells conversations apart; means nothing else. Stays the same.")]
    parent_stream: Annotated[
        str | None, Meta(description="The conversation that spawned it, if that is in this answer. Never a cycle.")
    ]
    session_id: Annotated[str, Meta(description='As the client gave it; "" when it gave none.')]
    parent_session_id: str
    num_tokens: Annotated[int, Meta(ge=0, description="Of its last turn's full blocks.")]
    tiers: Annotated[
        dict[str, Count], Meta(description="How many leading ones each tier has; a token may be in several.")
    ]
    fastest: Annotated[
        dict[str, Count], Meta(description="The same with each token counted once, in the fastest tier that has it.")
    ]
    lost_tokens: Annotated[int, Meta(ge=0, description="In no tier: `num_tokens` less the sum of `fastest`.")]
    running: bool
    idle_s: Annotated[float, Meta(ge=0, description="Since its last turn ended; 0 while one runs.")]
    return_in_s: Annotated[
        float | None, Meta(description="Expected median time until its next turn; null when none is expected.")
    ]
    kept_for_s: Annotated[
        float | None, Meta(description="How much longer a client or a TTL asked to keep it; null when nobody did.")
    ]
    why: Annotated[str, Meta(description="What the retention policy makes of it, in a few words.")]


class CacheState(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache holds, what it gave, and what it could not give and why."""

    object: Literal["cache"] = "cache"
    time_s: Annotated[float, Meta(description="The server's monotonic clock at this snapshot: for rates.")]
    model: str
    policy: Annotated[str, Meta(description="Name of the retention policy.")]
    block_size: Annotated[int, Meta(ge=1, description="Tokens per block.")]
    requests: Requests
    tokens: Tokens
    hits: Hits
    misses: Annotated[dict[str, Misses], Meta(description='By reason; "none": all that could be found was.')]
    loads: Loads
    evictions: Evictions
    saved_s: Annotated[
        float, Meta(description="What computing the cached tokens would have taken, less what loading them took.")
    ]
    prefill_tokens_per_s: Annotated[float | None, Meta(description="Measured; null before the first prefill.")]
    hints: Annotated[dict[str, dict[str, Count]], Meta(description="Hints by action and by what became of them.")]
    tiers: Annotated[tuple[TierState, ...], Meta(description="Fastest first.")]
    num_sessions: Annotated[
        int, Meta(ge=0, description="Conversations the engine remembers; with API keys, the caller's among the latest.")
    ]
    sessions: Annotated[
        tuple[SessionState, ...], Meta(description="The caller's latest, latest first; all callers' without API keys.")
    ]


def answer_schema() -> dict[str, Any]:
    """JSON Schema of the answer without references, as it stands in the OpenAPI document."""
    schema = msgspec.json.schema(CacheState)
    definitions = schema.pop("$defs")
    resolved = _resolved(schema, definitions)
    assert isinstance(resolved, dict)
    return resolved


def _resolved(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_resolved(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _resolved(value, definitions) for key, value in node.items() if key != "$ref"}
    if "$ref" in node:
        target = _resolved(definitions[node["$ref"].rpartition("/")[2]], definitions)
        found = {**target, **found}
    return found
