"""Whether to load KV from a tier or to compute it again, from measured rates."""

from __future__ import annotations

from collections.abc import Sequence

from samovar.core.ports import TierShare

_LEAST_TOKENS = 32
"""Steps with fewer prefill tokens say little of the prefill rate."""
_WINDOW_TOKENS = 8192.0
"""The rate is an average over about as many tokens."""


def blocks_to_load(shares: Sequence[TierShare], block_tokens: int, prefill_tokens_per_s: float) -> int:
    """How many leading blocks of a match to load so that all of it is there soonest: what a slow tier has behind a fast
    one may be worth computing."""
    if prefill_tokens_per_s <= 0.0:
        return sum(share.num_blocks for share in shares)
    best = taken = 0
    best_s = spent_s = 0.0
    for share in shares:
        taken += share.num_blocks
        # Against computing these blocks instead.
        spent_s += share.seconds - share.num_blocks * block_tokens / prefill_tokens_per_s
        if spent_s <= best_s:
            best, best_s = taken, spent_s
    return best


def with_probe(shares: Sequence[TierShare], wanted: int) -> int:
    """`wanted` blocks of a match, and behind them what the next tier is to be tried with. Computing these would be
    sooner, as far as is known; but of a tier from which nothing is loaded no more would ever be known."""
    before = 0
    for share in shares:
        if before >= wanted:
            return before + share.probe_blocks
        before += share.num_blocks
    return wanted


def load_s(shares: Sequence[TierShare], num_blocks: int) -> float:
    """Estimated time for the first so many blocks. What is queued before a share is waited for however much of it is
    wanted; nothing to speak of is where a tier may be tried."""
    seconds = 0.0
    for share in shares:
        part = min(num_blocks, share.num_blocks)
        seconds += share.seconds if part > share.probe_blocks else share.seconds * part / share.num_blocks
        num_blocks -= part
    return seconds


class PrefillRate:
    """Tokens per second of steps that prefill, without those that mostly decode."""

    __slots__ = ("_seconds", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    @property
    def tokens_per_s(self) -> float:
        """0.0 until there was a prefill."""
        return self._tokens / self._seconds if self._seconds > 0.0 else 0.0

    def step(self, num_prefill_tokens: int, num_decodes: int, seconds: float) -> None:
        if num_prefill_tokens < _LEAST_TOKENS or num_prefill_tokens < 4 * num_decodes or seconds <= 0.0:
            return
        self._tokens += num_prefill_tokens
        self._seconds += seconds
        if self._tokens > _WINDOW_TOKENS:
            keep = _WINDOW_TOKENS / self._tokens
            self._tokens *= keep
            self._seconds *= keep
