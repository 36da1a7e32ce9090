"""Counters and gauges of one engine, as a frozen snapshot that crosses a process border."""

from __future__ import annotations

import msgspec


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
