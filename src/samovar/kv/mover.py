"""The worker's half of the tiers: moves what plans say, in threads of its own, and reports each transfer once.

Three lanes, so that nothing waits for something slower than itself: memory (loads before stores), reads from disk
(loads before what is only expected to be wanted), writes to disk. A transfer is cut into pieces, which a lane's threads
take in order. A watchdog reports what has not ended in time; from then on the transfer's threads touch nothing
(`Transfer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
import threading
import time

from samovar.base.ids import TransferId
from samovar.core.plan import Load, Move, StepPlan, Store, TransferDone
from samovar.kv.attempt import attempt
from samovar.kv.deadlines import Deadlines
from samovar.kv.disk_moves import DiskMoves
from samovar.kv.disk_store import DiskStore, NoDisk
from samovar.kv.host_memory import PagesAhead
from samovar.kv.host_moves import HostMoves
from samovar.kv.lane import Bounce, Lane, Work
from samovar.kv.layout import BlockLayout
from samovar.kv.mover_stats import Counters, MoverStats
from samovar.kv.transfer import Transfer
from samovar.pool.arena import HostArena

MEMORY_PIECE_BYTES = 1 << 20
"""What a core's cache holds while it is copied, verified and copied again."""
READ_PIECE_BYTES = 8 << 20
WRITE_PIECE_BYTES = 32 << 20
"""The most of one commit."""
CLOSE_S = 3.0
"""How long `close` waits for threads that are at work."""

_FIRST, _SECOND = 0, 1


@dataclass(frozen=True, slots=True)
class MoverSettings:
    memory_threads: int = 2
    read_threads: int = 4
    deadline_s: float = 30.0
    """From the start of a transfer until it is reported late. A large one has longer:"""
    slowest_bytes_per_s: float = 100e6


@dataclass(frozen=True, slots=True)
class _Part:
    """Blocks of one transfer that take the same way."""

    lane: Lane
    queue: int
    carry: Callable[[Sequence[int], Bounce], None]
    """Moves the blocks at some of the positions."""
    positions: range
    step: int
    """Blocks per piece."""

    @property
    def num_pieces(self) -> int:
        return -(-len(self.positions) // self.step)


class TierMover:
    """`core.ports.Mover`. `on_done` is called after each transfer that `done` will hand out, from any thread; it must
    be quick. The arena, the disk and the device's arrays are the caller's, and must outlive `close`."""

    def __init__(
        self,
        layout: BlockLayout,
        arena: HostArena,
        disk: DiskStore | None,
        on_done: Callable[[], None],
        settings: MoverSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert layout.block_bytes == arena.slot_bytes, "a slot is not as large as a block"
        self._settings = settings or MoverSettings()
        self._clock = clock
        self._on_done = on_done
        self._stride_bytes = arena.stride_bytes
        self._counters = Counters()
        self._lock = threading.Lock()
        self._open: dict[TransferId, Transfer] = {}
        self._finished: list[TransferDone] = []
        self._closed = False
        self._pages = PagesAhead(arena)
        self._host = HostMoves(layout, arena, self._pages, self._counters, clock)
        self._disk = DiskMoves(arena, self._pages, disk or NoDisk(), self._host, self._counters, clock)
        self._deadlines = Deadlines(partial(self._end, late=True), clock)
        error = self._counters.error
        self._memory = Lane("memory", self._settings.memory_threads, 2, error)
        self._reads = Lane("read", self._settings.read_threads, 2, error)
        self._writes = Lane("write", 1, 1, error)

    def start(self, plan: StepPlan) -> None:
        for load in plan.loads:
            self._load(load)
        for store in plan.stores:
            self._store(store)
        for move in plan.moves:
            self._move(move)

    def done(self) -> Sequence[TransferDone]:
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def stats(self) -> MoverStats:
        with self._lock:
            num_open = len(self._open)
        return self._counters.snapshot(num_open, self._pages.touched_bytes)

    def check(self) -> None:
        """Recompute every invariant; for any moment. Raises AssertionError."""
        with self._lock:
            open_transfers, finished = dict(self._open), [done.transfer_id for done in self._finished]
        assert len(set(finished)) == len(finished), "a transfer is reported twice"
        for transfer_id, transfer in open_transfers.items():
            assert transfer.id == transfer_id
            transfer.check()

    def close(self) -> None:
        """What is under way is given up and not reported. When this returns nothing touches the device or the arena any
        more; a thread that hangs in a read of the disk is left behind, and ends when it comes back."""
        with self._lock:
            self._closed = True
            open_transfers = list(self._open.values())
            self._finished.clear()
        lanes = (self._memory, self._reads, self._writes)
        for lane in lanes:
            lane.stop()
        for transfer in open_transfers:
            self._end(transfer)
        until = time.monotonic() + CLOSE_S
        for lane in lanes:
            lane.join(until - time.monotonic())
        self._deadlines.close()
        self._pages.close()

    def _load(self, load: Load) -> None:
        transfer = self._new(load.transfer_id, len(load.keys), in_order=True)
        every = range(len(load.keys))
        near, far = every[: len(every) - load.from_disk], every[len(every) - load.from_disk :]
        self._begin(
            transfer,
            _Part(
                self._memory, _FIRST, partial(self._host.load, transfer, load), near, self._blocks(MEMORY_PIECE_BYTES)
            ),
            _Part(self._reads, _FIRST, partial(self._disk.load, transfer, load), far, self._blocks(READ_PIECE_BYTES)),
        )

    def _store(self, store: Store) -> None:
        transfer = self._new(store.transfer_id, len(store.keys))
        carry = partial(self._host.store, transfer, store)
        every = range(len(store.keys))
        self._begin(transfer, _Part(self._memory, _SECOND, carry, every, self._blocks(MEMORY_PIECE_BYTES)))

    def _move(self, move: Move) -> None:
        transfer, every = self._new(move.transfer_id, len(move.keys)), range(len(move.keys))
        if move.op == "read":
            carry = partial(self._disk.read, transfer, move)
            part = _Part(self._reads, _SECOND, carry, every, self._blocks(READ_PIECE_BYTES))
        else:
            # One queue: what is deleted and written again must not overtake each other.
            carry = partial(self._disk.write if move.op == "write" else self._disk.delete, transfer, move)
            part = _Part(self._writes, _FIRST, carry, every, self._blocks(WRITE_PIECE_BYTES))
        self._begin(transfer, part)

    def _blocks(self, num_bytes: int) -> int:
        return max(1, num_bytes // self._stride_bytes)

    def _new(self, transfer_id: TransferId, num_blocks: int, *, in_order: bool = False) -> Transfer:
        transfer = Transfer(transfer_id, num_blocks, in_order=in_order, clock=self._clock)
        with self._lock:
            assert transfer_id not in self._open, f"transfer {transfer_id} is under way already"
            if self._closed:
                transfer.end()
            else:
                self._open[transfer_id] = transfer
        return transfer

    def _begin(self, transfer: Transfer, *parts: _Part) -> None:
        transfer.expect(sum(part.num_pieces for part in parts))
        num_bytes = sum(len(part.positions) for part in parts) * self._stride_bytes
        if num_bytes == 0:
            self._end(transfer)
            return
        allowed_s = self._settings.deadline_s + num_bytes / self._settings.slowest_bytes_per_s
        self._deadlines.add(transfer, self._clock() + allowed_s)
        for part in parts:
            part.lane.put(part.queue, self._work(transfer, part))

    def _work(self, transfer: Transfer, part: _Part) -> Iterator[Work]:
        for at in range(0, len(part.positions), part.step):
            yield self._piece(transfer, part, part.positions[at : at + part.step])

    def _piece(self, transfer: Transfer, part: _Part, positions: range) -> Work:
        def work(bounce: Bounce) -> None:
            try:
                with transfer.working():
                    attempt(transfer, positions, lambda some: part.carry(some, bounce), self._counters.error)
            finally:
                if transfer.piece_done():
                    self._end(transfer)

        return work

    def _end(self, transfer: Transfer, *, late: bool = False) -> None:
        done = transfer.end()
        if done is None:
            return
        with self._lock:
            self._open.pop(transfer.id, None)
            if self._closed:
                return
            self._finished.append(done)
        self._counters.failed(done.reason, len(done.failed), late=late)
        try:
            self._on_done()
        except Exception as error:
            self._counters.error(error)
