"""What `samovar bench kv` reports: speeds beside the plain operation that they are to be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samovar.bench.compute.timing import Timing


@dataclass(frozen=True, slots=True)
class KVFigure:
    what: str
    block_bytes: int
    threads: int
    median_s: float
    """Per block, of all threads together."""
    bytes_per_s: float
    share: float
    """Of the speed of `beside`, measured in turn with it."""
    beside: str
    target: float | None = None
    """What `share` should be at least."""

    @property
    def missed(self) -> bool:
        return self.target is not None and self.share < self.target


def figures_of(
    timings: Mapping[str, Timing],
    beside: str,
    block_bytes: int,
    threads: int,
    blocks: int,
    targets: Mapping[str, float],
) -> list[KVFigure]:
    """`timings`: of moving so many blocks."""
    plain = timings[beside].median_s
    return [
        KVFigure(
            what=what,
            block_bytes=block_bytes,
            threads=threads,
            median_s=timing.median_s / blocks,
            bytes_per_s=block_bytes * blocks / timing.median_s,
            share=plain / timing.median_s,
            beside=beside,
            target=targets.get(what),
        )
        for what, timing in timings.items()
    ]
