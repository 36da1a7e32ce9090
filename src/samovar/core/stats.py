"""Counters and gauges of one engine, as a frozen snapshot that crosses a process border."""

from __future__ import annotations

import msgspec


class TierReport(msgspec.Struct, frozen=True):
    """One tier as of now; counters count from the engine's start."""

    tier: str
    """"device", "host", "disk"."""
    num_blocks: int = 0
    """Capacity."""
    num_used_blocks: int = 0
    """With content, or being filled."""
    block_bytes: int = 0
    physical_bytes: int = 0
    """Memory or disk space taken now: blocks alone as the core counts, all of it once a runner measured."""
    capacity_bytes: int = 0
    stored_blocks: int = 0
    """That became findable in it, from the tier above; then from the one below, and found at the start or again after
    what they follow was damaged. Less those that were evicted, and forgotten for other reasons, they are in it now."""
    promoted_blocks: int = 0
    recovered_blocks: int = 0
    evicted_blocks: int = 0
    forgotten_blocks: int = 0
    loaded_blocks: int = 0
    """Copies that were taken up from it."""
    failed: dict[str, int] = {}
    """Blocks that could not be loaded, stored or verified, by reason."""
    not_yet_durable_blocks: int = 0
    """Disk: blocks that are to survive a restart and would not do so now."""
    bytes_per_s: float = 0.0
    """Measured, of loads from it."""
    suspended: bool = False
    """Nothing is offered from it, since it did not answer in time."""
    suspensions: int = 0


class SessionReport(msgspec.Struct, frozen=True):
    """A conversation that the engine remembers."""

    session_id: str
    tenant: str
    parent_session_id: str = ""
    stream: str = ""
    num_tokens: int = 0
    """Of its last turn's full blocks."""
    tiers: dict[str, int] = {}
    """Leading tokens of them in each tier; a token may be in several."""
    running: bool = False
    idle_s: float = 0.0
    return_in_s: float | None = None
    kept_for_s: float | None = None
    """How much longer a client or a TTL asked to keep it."""
    why: str = ""
    """What the retention policy makes of it, in a few words."""


class CacheReport(msgspec.Struct, frozen=True):
    """What `/v1/cache` and the live page show."""

    policy: str
    block_tokens: int
    tiers: tuple[TierReport, ...]
    sessions: tuple[SessionReport, ...]
    """The latest ones first, at most 200 of a tenant."""
    num_sessions: int


class EngineStats(msgspec.Struct, frozen=True):
    """Gauges are as of now, counters count from the engine's start and only grow."""

    num_running: int = 0
    num_waiting: int = 0
    """Admitted to the queue, not yet to the device; the two below split it."""
    num_waiting_for_capacity: int = 0
    num_waiting_deferred: int = 0
    """Held for a sibling's blocks, a transfer or the prefill cadence."""
    num_queued_tokens: int = 0
    """Uncached prompt tokens still to be computed for waiting requests."""
    num_blocks: int = 0
    num_free_blocks: int = 0
    """Neither used by a request nor cached."""
    num_cached_blocks: int = 0
    """Cached and unused: free at a moment's notice."""

    steps: int = 0
    step_tokens: int = 0
    """Tokens of all steps: prompts, generated ones, and what was computed again or for a client that went away."""
    prefill_steps: int = 0
    failed_steps: int = 0
    requests_admitted: int = 0
    requests_finished: dict[str, int] = {}
    """By finish reason."""
    requests_rejected: dict[str, int] = {}
    """By error code."""
    preemptions: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of requests that reached their first token: computed + cached."""
    prompt_tokens_cached: int = 0
    cached_tokens_by_tier: dict[str, int] = {}
    """`prompt_tokens_cached` by where they were found: "device", or the tier they were loaded from."""
    prompt_tokens_computed: int = 0
    """By first prefills."""
    recomputed_tokens: int = 0
    """Computed again after a preemption or a failed step."""
    generation_tokens: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    shared_tokens: int = 0
    """Part of the hits: not in the cache when the request arrived; a sibling computed them meanwhile."""
    evicted_blocks: int = 0
    deduplicated_blocks: int = 0
    loaded_blocks: int = 0
    stored_blocks: int = 0
    failed_load_blocks: int = 0
    failed_load_reasons: dict[str, int] = {}
    """Blocks by why their load failed."""
    wasted_load_blocks: int = 0
    """Loaded into the device and evicted, or given up, before any request used them."""
    ceiling_tokens: int = 0
    """What an infinite cache would have found of `prompt_tokens`."""
    regretted_tokens: int = 0
    """Prompt tokens computed because an eviction had taken them."""
    saved_s: float = 0.0
    """Time that computing the cached tokens would have taken, at the measured prefill rate, less what loading took."""
    prefill_tokens_per_s: float = 0.0
    """Measured; 0.0 until there was a prefill."""
    declined_load_blocks: int = 0
    """Found in a tier and computed all the same, which was estimated to be faster."""
    prefetched_blocks: int = 0
    verified_blocks: int = 0
    """Computed again after they had been loaded, and compared."""
    differing_blocks: int = 0
    """Of those, the ones that were not equal: some tier gave wrong bytes that nothing else noticed."""
    hints: dict[str, int] = {}
    """Hints by "kind:status"."""
    misses: dict[str, int] = {}
    """Requests by miss reason."""
    missed_tokens: dict[str, int] = {}
    """Prompt tokens by miss reason."""

    @property
    def kv_usage(self) -> float:
        """Share of blocks held by live requests, 0..1."""
        if self.num_blocks == 0:
            return 0.0
        return 1.0 - (self.num_free_blocks + self.num_cached_blocks) / self.num_blocks
