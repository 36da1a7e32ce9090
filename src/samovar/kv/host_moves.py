"""Moves blocks between the device and slots of the host tier. Torch-free: the device is a `BlockLayout` over arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samovar.core.plan import Load, Store
from samovar.kv.host_memory import PagesAhead
from samovar.kv.lane import Bounce, Bytes
from samovar.kv.layout import BlockLayout
from samovar.kv.mover_stats import Counters, Direction
from samovar.kv.transfer import Transfer
from samovar.pool.arena import HostArena


class HostMoves:
    """Methods are for any thread. What a tier raises comes through: `attempt` is around them."""

    def __init__(
        self,
        layout: BlockLayout,
        arena: HostArena,
        pages: PagesAhead,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._layout = layout
        self._arena = arena
        self._pages = pages
        self._counters = counters
        self._clock = clock

    def load(self, transfer: Transfer, load: Load, positions: Sequence[int], bounce: Bounce) -> None:
        """Up to the first slot that does not hold what it should."""
        begin = self._clock()
        stride, size = self._arena.stride_bytes, self._layout.block_bytes
        memory = bounce.take(len(positions) * stride)
        good: list[int] = []
        for n, i in enumerate(positions):
            copy = memory[n * stride : n * stride + size]
            outcome = self._arena.get(load.slots[i], load.keys[i], load.generations[i], copy, cached=True)
            if outcome != "ok":
                transfer.fail(i, outcome)
                break
            good.append(i)
        self.to_device(transfer, load, good, memory, begin)

    def to_device(self, transfer: Transfer, load: Load, positions: Sequence[int], memory: Bytes, begin: float) -> None:
        """`memory`: the calling thread's own, with verified blocks at multiples of the arena's stride. `begin`: since
        when they have been worked on."""
        with transfer.writing() as may_write:
            if not may_write or not positions:
                return
            offsets = [n * self._arena.stride_bytes for n in range(len(positions))]
            self._layout.scatter([load.blocks[i] for i in positions], memory, offsets)
            for i in positions:
                transfer.arrived(i)
        self._moved("host_to_device", len(positions), begin)

    def store(self, transfer: Transfer, store: Store, positions: Sequence[int], bounce: Bounce) -> None:
        """Through memory that stays in the core's cache, and from there into the slots: nobody else writes there, and
        the blocks do not change, while the door is open."""
        begin = self._clock()
        stride, size = self._arena.stride_bytes, self._layout.block_bytes
        memory = bounce.take(len(positions) * stride)
        with transfer.writing() as may_write:
            if not may_write:
                return
            self._pages.used(max(store.slots[i] for i in positions))
            offsets = [n * stride for n in range(len(positions))]
            self._layout.gather([store.blocks[i] for i in positions], memory, offsets)
            for i, at in zip(positions, offsets, strict=True):
                self._arena.put(store.slots[i], store.keys[i], store.generations[i], memory[at : at + size])
                transfer.arrived(i)
        self._moved("device_to_host", len(positions), begin)

    def _moved(self, direction: Direction, blocks: int, begin: float) -> None:
        self._counters.moved(direction, blocks, blocks * self._layout.block_bytes, self._clock() - begin)
