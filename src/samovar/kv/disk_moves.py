"""Moves blocks between slots of the host tier and the disk, and from the disk through a slot to the device.

A read may hang, so it lands in its thread's own memory, never in a slot that could have another owner when it comes
back. What goes to disk is a verified copy as well: a slot that changes under a slow write would otherwise be written,
with a checksum of its new content, under the old key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from samovar.core.plan import Load, Move
from samovar.kv.disk_store import DiskStore
from samovar.kv.host_memory import PagesAhead
from samovar.kv.host_moves import HostMoves
from samovar.kv.lane import Bounce, Bytes
from samovar.kv.mover_stats import Counters
from samovar.kv.transfer import Transfer
from samovar.pool.arena import HostArena
from samovar.pool.disk.record import Block

_REASONS = frozenset(("missing", "checksum", "io", "full", "gone"))


class DiskMoves:
    """Methods are for any thread. What a tier raises comes through: `attempt` is around them."""

    def __init__(
        self,
        arena: HostArena,
        pages: PagesAhead,
        disk: DiskStore,
        host: HostMoves,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._arena = arena
        self._pages = pages
        self._disk = disk
        self._host = host
        self._counters = counters
        self._clock = clock

    def load(self, transfer: Transfer, load: Load, positions: Sequence[int], bounce: Bounce) -> None:
        """Disk to slots, where the blocks stay, and on to the device; up to the first that cannot be read."""
        begin = self._clock()
        memory = bounce.take(len(positions) * self._arena.stride_bytes)
        copies = self._read(transfer, load, positions, memory)
        leading = list(takewhile(copies.__contains__, positions))
        if self._to_slots(transfer, load, {i: copies[i] for i in leading}, begin):
            self._host.to_device(transfer, load, leading, memory, self._clock())

    def read(self, transfer: Transfer, move: Move, positions: Sequence[int], bounce: Bounce) -> None:
        begin = self._clock()
        copies = self._read(transfer, move, positions, bounce.take(len(positions) * self._arena.stride_bytes))
        with transfer.writing():
            if self._to_slots(transfer, move, copies, begin):
                for i in copies:
                    transfer.arrived(i)

    def write(self, transfer: Transfer, move: Move, positions: Sequence[int], bounce: Bounce) -> None:
        """One commit for all of them."""
        begin = self._clock()
        good: list[int] = []
        blocks: list[Block] = []
        memory = bounce.take(len(positions) * self._arena.stride_bytes)
        for i, copy in zip(positions, self._copies(memory, len(positions)), strict=True):
            outcome = self._arena.get(move.slots[i], move.keys[i], move.generations[i], copy)
            if outcome != "ok":
                transfer.fail(i, outcome)
                continue
            good.append(i)
            blocks.append(Block(move.keys[i], move.parents[i], move.stream, copy.data))
        outcomes = self._disk.write(blocks) if blocks else ()
        written = self._settle(transfer, good, outcomes)
        for i in written:
            transfer.arrived(i)
        self._counters.moved("host_to_disk", len(written), self._bytes(len(written)), self._clock() - begin)

    def delete(self, transfer: Transfer, move: Move, positions: Sequence[int], bounce: Bounce) -> None:
        self._disk.delete([move.keys[i] for i in positions])
        for i in positions:
            transfer.arrived(i)
        self._counters.deleted(len(positions))

    def _read(
        self, transfer: Transfer, wanted: Load | Move, positions: Sequence[int], memory: Bytes
    ) -> dict[int, Bytes]:
        """Of those that could be read, where they lie in `memory`."""
        copies = self._copies(memory, len(positions))
        outcomes = self._disk.read_many_into([wanted.keys[i] for i in positions], [copy.data for copy in copies])
        good = set(self._settle(transfer, positions, outcomes))
        return {i: copy for i, copy in zip(positions, copies, strict=True) if i in good}

    def _to_slots(self, transfer: Transfer, wanted: Load | Move, copies: dict[int, Bytes], begin: float) -> bool:
        """False when there was nothing to do, or it is too late."""
        with transfer.writing() as may_write:
            if not may_write or not copies:
                return False
            self._pages.used(max(wanted.slots[i] for i in copies))
            for i, copy in copies.items():
                self._arena.put(wanted.slots[i], wanted.keys[i], wanted.generations[i], copy)
        self._counters.moved("disk_to_host", len(copies), self._bytes(len(copies)), self._clock() - begin)
        return True

    def _settle(self, transfer: Transfer, positions: Sequence[int], outcomes: Sequence[str]) -> list[int]:
        """Those that went well; the others have failed. Raises ValueError, before any has, for too few outcomes."""
        good: list[int] = []
        for i, outcome in list(zip(positions, outcomes, strict=True)):
            if outcome == "ok":
                good.append(i)
            else:
                transfer.fail(i, outcome if outcome in _REASONS else "io")
        return good

    def _copies(self, memory: Bytes, count: int) -> list[Bytes]:
        """Places for blocks, at multiples of the arena's stride."""
        stride, size = self._arena.stride_bytes, self._arena.slot_bytes
        return [memory[n * stride : n * stride + size] for n in range(count)]

    def _bytes(self, blocks: int) -> int:
        return blocks * self._arena.slot_bytes
