"""The host tier's part of `samovar bench kv`: put and get with their checksums, and whole stores and loads of a model's
blocks, beside a plain copy of as many bytes.

Everything lies in memory that is larger than one core's caches and is visited in random order. The plain copy is
`np.copyto` from block to block of such memory, on as many threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samovar.bench.compute.timing import Run, alternate
from samovar.bench.kv_figures import KVFigure, figures_of
from samovar.bench.kv_team import Team
from samovar.kernels.cpu.pages import zeroed
from samovar.kv.host_memory import new_arena
from samovar.kv.layout import BlockLayout
from samovar.pool.arena import HostArena
from samovar.pool.checksum import block_checksum

Bytes = NDArray[np.uint8]

COPY = "np.copyto"
TARGET = 0.70
"""Of get and put of large blocks."""
TARGET_FROM_BYTES = 2 << 20
SAMPLE_BYTES = 128 << 20
GENERATION = 1


@dataclass(frozen=True, slots=True)
class Ground:
    """Slots, all sealed, and as many places outside."""

    arena: HostArena
    places: list[Bytes]
    keys: list[bytes]


def measure_host(block_bytes: int, threads: int, repeats: int, memory_bytes: int, seed: int) -> list[KVFigure]:
    """`memory_bytes`: of the slots, and of the places besides."""
    ground = _ground(block_bytes, memory_bytes, seed)
    order = _order(len(ground.places), block_bytes, seed)
    with Team(threads) as team:
        runs = _host_runs(ground, team, order)
        timings = dict(zip(runs, alternate(list(runs.values()), repeats), strict=True))
    targets = {"put": TARGET, "get": TARGET} if block_bytes >= TARGET_FROM_BYTES else {}
    return figures_of(timings, COPY, block_bytes, threads, len(order), targets)


def _host_runs(ground: Ground, team: Team, order: NDArray[np.int64]) -> dict[str, Run]:
    arena, places, keys = ground.arena, ground.places, ground.keys
    count, size = len(places), arena.slot_bytes
    slots = [arena.memory[arena.offset(slot) :][:size] for slot in range(count)]

    def copy(_: int, numbers: list[int]) -> None:
        for n in numbers:
            np.copyto(places[count - 1 - n], slots[n])

    def checksum(_: int, numbers: list[int]) -> None:
        for n in numbers:
            block_checksum(slots[n].data, keys[n], GENERATION)

    def put(_: int, numbers: list[int]) -> None:
        for n in numbers:
            arena.put(n, keys[n], GENERATION, places[count - 1 - n])

    def get(_: int, numbers: list[int]) -> None:
        for n in numbers:
            outcome = arena.get(n, keys[n], GENERATION, places[count - 1 - n])
            assert outcome == "ok", f"slot {n}: {outcome}"

    steps = {COPY: copy, "checksum alone": checksum, "put": put, "get": get}
    return {what: team.each(order, step) for what, step in steps.items()}


def measure_model_blocks(
    shapes: Sequence[tuple[tuple[int, ...], str]],
    threads: int,
    repeats: int,
    memory_bytes: int,
    seed: int,
) -> list[KVFigure]:
    """Blocks of a device pool of these arrays (shape of a piece, dtype): gathered, scattered, stored and loaded, the
    latter two with checksums."""
    piece_bytes = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in shapes)
    ground = _ground(piece_bytes, memory_bytes, seed)
    count = len(ground.places)
    arrays = [_array(count, shape, dtype) for shape, dtype in shapes]
    layout = BlockLayout(arrays)
    order = _order(count, layout.block_bytes, seed)
    with Team(threads) as team:
        runs = _block_runs(ground, layout, team, order)
        timings = dict(zip(runs, alternate(list(runs.values()), repeats), strict=True))
    return figures_of(timings, COPY, layout.block_bytes, threads, len(order), {})


def _block_runs(ground: Ground, layout: BlockLayout, team: Team, order: NDArray[np.int64]) -> dict[str, Run]:
    arena, places, keys = ground.arena, ground.places, ground.keys
    count, size = len(places), layout.block_bytes
    slots = [arena.memory[arena.offset(slot) :][:size] for slot in range(count)]
    bounces = [zeroed(size) for _ in range(team.threads)]

    def copy(_: int, numbers: list[int]) -> None:
        for n in numbers:
            np.copyto(places[count - 1 - n], slots[n])

    def gather(_: int, numbers: list[int]) -> None:
        for n in numbers:
            layout.gather([count - 1 - n], arena.memory, [arena.offset(n)])

    def scatter(_: int, numbers: list[int]) -> None:
        for n in numbers:
            layout.scatter([count - 1 - n], arena.memory, [arena.offset(n)])

    def store(thread: int, numbers: list[int]) -> None:
        bounce = bounces[thread]
        for n in numbers:
            layout.gather([count - 1 - n], bounce, [0])
            arena.put(n, keys[n], GENERATION, bounce)

    def load(thread: int, numbers: list[int]) -> None:
        bounce = bounces[thread]
        for n in numbers:
            outcome = arena.get(n, keys[n], GENERATION, bounce, cached=True)
            assert outcome == "ok", f"slot {n}: {outcome}"
            layout.scatter([count - 1 - n], bounce, [0])

    # The device gets what the slots hold, so that no step changes what another expects.
    steps = {COPY: copy, "gather": gather, "scatter": scatter, "store": store, "load": load}
    for slot in range(count):
        layout.scatter([count - 1 - slot], slots[slot], [0])
    return {what: team.each(order, step) for what, step in steps.items()}


def _ground(block_bytes: int, memory_bytes: int, seed: int) -> Ground:
    count = max(2, memory_bytes // block_bytes)
    arena = new_arena(count, block_bytes)
    outside = zeroed(count * arena.stride_bytes)
    places = [outside[arena.offset(n) :][:block_bytes] for n in range(count)]
    keys = [n.to_bytes(16, "little") for n in range(count)]
    pattern = np.random.default_rng(seed).integers(0, 256, block_bytes, dtype=np.uint8)
    for n, place in enumerate(places):
        np.add(pattern, n % 251, out=place, dtype=np.uint8)
        arena.put(n, keys[n], GENERATION, place)
    return Ground(arena, places, keys)


def _array(num_blocks: int, shape: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return zeroed(num_blocks * size).view(dtype).reshape(num_blocks, *shape)


def _order(count: int, block_bytes: int, seed: int) -> NDArray[np.int64]:
    """Which blocks a sample visits: as many as make it long enough to time."""
    wanted = max(1, min(count, SAMPLE_BYTES // block_bytes))
    return np.random.default_rng(seed).permutation(count)[:wanted].astype(np.int64)
