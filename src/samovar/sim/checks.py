"""What must hold of every run, whatever its settings. A violation is a bug of the simulator or of the core, so it is an
AssertionError that names the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from samovar.core.stats import EngineStats
from samovar.sim.live import Live
from samovar.sim.outcome import TurnTiming
from samovar.sim.rank import Rank

ROUNDING_S = 1e-6


def check_tokens(live: Live, stats: EngineStats) -> None:
    """A prompt's tokens were computed or cached, each exactly once unless its request lost its place in between."""
    if live.cached_tokens is None:
        return
    found = live.computed_tokens + live.cached_tokens
    moved = live.num_starts != 1 or live.gave_up_load or stats.preemptions > 0
    assert moved or found == live.num_prompt, (
        f"request {live.id}: {live.computed_tokens} computed + {live.cached_tokens} cached tokens of a prompt of "
        f"{live.num_prompt}"
    )
    assert live.cached_tokens < live.num_prompt, (
        f"request {live.id}: {live.cached_tokens} cached tokens of a prompt of {live.num_prompt}"
    )
    assert live.error or live.end_s is None or live.output_tokens == live.launch.output_tokens, (
        f"request {live.id}: {live.output_tokens} tokens came, {live.launch.output_tokens} were to"
    )


def check_ceiling(lives: Iterable[Live]) -> None:
    """All requests together find no more than an infinite cache would have; each alone may, when one that came later
    was computed before it."""
    cached = ceiling = 0
    for live in lives:
        cached += live.cached_tokens or 0
        ceiling += live.ceiling_tokens
    assert cached <= ceiling, f"{cached} prompt tokens were found, an infinite cache had {ceiling}"


def check_timing(live: Live, timing: TurnTiming, latency_s: float) -> None:
    assert abs(timing.total_s - latency_s) <= ROUNDING_S + 1e-9 * latency_s, (
        f"request {live.id}: its parts take {timing.total_s} s, it took {latency_s} s"
    )
    parts = (timing.front_end_s, timing.queue_s, timing.load_s, timing.prefill_s, timing.decode_s, timing.other_ranks_s)
    assert min(parts) >= -ROUNDING_S, f"request {live.id}: a part of its time is negative: {timing}"


def check_ranks(ranks: Sequence[Rank], stats: Sequence[EngineStats]) -> None:
    """After everything has ended: no request holds a block, and the core counted what the driver saw."""
    for rank, found in zip(ranks, stats, strict=True):
        rank.engine.check()
        assert found.num_free_blocks + found.num_cached_blocks == found.num_blocks, (
            f"rank {rank.number}: {found.num_free_blocks} free + {found.num_cached_blocks} cached blocks of "
            f"{found.num_blocks} after the last request"
        )
        assert found.step_tokens == rank.computed_tokens, (
            f"rank {rank.number}: the core counts {found.step_tokens} tokens of steps, "
            f"the driver {rank.computed_tokens}"
        )
