"""`samovar bench kv`: what the tiers' own work costs, as ratios to plain operations on as many bytes in the same run.

No torch: the device is a set of arrays of the shapes that a model's pool has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from samovar.base.errors import ConfigError
from samovar.bench.kv_disk import measure_disk
from samovar.bench.kv_figures import KVFigure
from samovar.bench.kv_memory import measure_host, measure_model_blocks
from samovar.kernels.packed_ops import TILE_TOKENS
from samovar.runner.memory import available_memory_bytes
from samovar.spec.dtype import KV_SCALE_BYTES
from samovar.spec.model import ModelSpec

Progress = Callable[[str], None]
Shapes = tuple[tuple[tuple[int, ...], str], ...]

SHARE_OF_MEMORY = 0.7
REGIONS = 3
"""Slots, places outside, and a device."""
MOST_THREADS = 256


@dataclass(frozen=True, slots=True)
class KVBench:
    sizes_bytes: tuple[int, ...] = (2 << 20, 256 << 10)
    threads: tuple[int, ...] = (1, 2)
    repeats: int = 7
    memory_bytes: int = 512 << 20
    """Of each region that blocks are copied between."""
    disk: Path | None = None
    disk_bytes: int = 512 << 20
    """Of each of the files that are read."""
    seed: int = 0

    def __post_init__(self) -> None:
        for flag, value, least in (("--repeats", self.repeats, 1), ("--size", min(self.sizes_bytes, default=0), 1)):
            if value < least:
                raise ConfigError(f"{flag} must be at least {least}, got {value}")
        for threads in self.threads:
            if not 1 <= threads <= MOST_THREADS:
                raise ConfigError(f"--threads takes 1 to {MOST_THREADS}, got {threads}", param="threads")
        largest = max(self.sizes_bytes)
        for flag, value in (("--memory", self.memory_bytes), ("--disk-bytes", self.disk_bytes)):
            if value < 2 * largest:
                raise ConfigError(f"{flag} is {value} bytes: it must hold two blocks of {largest} bytes")


@dataclass(frozen=True, slots=True)
class KVRun:
    host: list[KVFigure]
    """Put and get of every size."""
    blocks: list[KVFigure]
    """Stores and loads of the model's blocks."""
    disk: list[KVFigure]
    """Empty without a folder."""

    @property
    def figures(self) -> list[KVFigure]:
        return self.host + self.blocks + self.disk


def run(bench: KVBench, shapes: Shapes, progress: Progress, free_bytes: int | None = None) -> KVRun:
    """`shapes`: of `pool_shapes`. `free_bytes`: of memory; measured when None. Raises ConfigError before anything is
    measured."""
    _check_memory(bench, available_memory_bytes() if free_bytes is None else free_bytes)
    block_bytes = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in shapes)
    host, blocks, disk = [], [], []
    for threads in bench.threads:
        for size in dict.fromkeys((*bench.sizes_bytes, block_bytes)):
            progress(f"put and get, {size} bytes, {threads} threads")
            host += measure_host(size, threads, bench.repeats, bench.memory_bytes, bench.seed)
        progress(f"stores and loads of the model's blocks, {threads} threads")
        blocks += measure_model_blocks(shapes, threads, bench.repeats, bench.memory_bytes, bench.seed)
    if bench.disk is not None:
        for size in dict.fromkeys((*bench.sizes_bytes, block_bytes)):
            progress(f"disk, {size} bytes")
            disk += measure_disk(bench.disk, size, bench.threads, bench.repeats, bench.disk_bytes, bench.seed)
    return KVRun(host, blocks, disk)


def pool_shapes(spec: ModelSpec, block_tokens: int, dtype: str) -> Shapes:
    """Of the pieces of a block in a tiled pool, as `KVTiles` says: keys and values of each layer. `dtype`: "bfloat16"
    or "int8"."""
    if block_tokens < TILE_TOKENS or block_tokens % TILE_TOKENS:
        raise ConfigError(f"--block-size must be a multiple of {TILE_TOKENS}, got {block_tokens}", param="block_size")
    if dtype not in ("bfloat16", "int8"):
        raise ConfigError(f"--kv-cache-dtype takes bfloat16 or int8, got {dtype!r}", param="kv_cache_dtype")
    tiles = (block_tokens // TILE_TOKENS, spec.num_kv_heads)
    if dtype == "int8":
        piece = ((*tiles, TILE_TOKENS * (spec.head_dim + KV_SCALE_BYTES)), "uint8")
        return (piece, piece) * spec.num_layers
    keys = ((*tiles, spec.head_dim // 2, TILE_TOKENS, 2), "uint16")
    values = ((*tiles, TILE_TOKENS // 2, spec.head_dim, 2), "uint16")
    return (keys, values) * spec.num_layers


def _check_memory(bench: KVBench, free_bytes: int | None) -> None:
    needed = REGIONS * max(bench.memory_bytes, bench.disk_bytes if bench.disk else 0)
    if free_bytes is not None and needed > SHARE_OF_MEMORY * free_bytes:
        raise ConfigError(
            f"--memory {bench.memory_bytes} takes {REGIONS} times as much, {needed / 1e9:.1f} GB;"
            f" {free_bytes / 1e9:.1f} GB are free",
            param="memory",
        )
