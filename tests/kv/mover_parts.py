"""A mover with a small device, a host tier and a disk that can be told to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import threading
import time

import numpy as np
from numpy.typing import NDArray

from samovar.base.ids import TransferId
from samovar.core.plan import Load, Move, StepPlan, Store, TransferDone
from samovar.kv.disk_store import DiskStore
from samovar.kv.host_memory import new_arena
from samovar.kv.layout import BlockLayout
from samovar.kv.mover import MoverSettings, TierMover
from samovar.pool.disk.record import Record

SHAPES = (((2, 3, 5), "uint16"), ((4, 7), "float32"), ((33,), "uint8"))
"""Of the device's arrays, without the blocks: 205 bytes in all."""
LARGE_SHAPES = (((5, 64, 128), "uint16"),) * 4
"""320 KiB: large enough that copies and checksums run without the GIL, and can be disturbed."""
QUICK = MoverSettings(deadline_s=0.5)


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def keys(numbers: Sequence[int]) -> tuple[bytes, ...]:
    return tuple(key(number) for number in numbers)


class MemoryDisk:
    """Keeps blocks in a dict. `before(op, keys)` runs first, in the mover's thread, and may raise or wait."""

    def __init__(self, before: Callable[[str, Sequence[bytes]], None] = lambda op, keys: None) -> None:
        self.before = before
        self.blocks: dict[bytes, bytes] = {}
        self.records: list[tuple[bytes, bytes, str]] = []
        self.calls: list[tuple[str, int]] = []
        self.outcome: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def write(self, blocks: Sequence[Record]) -> Sequence[str]:
        self._begin("write", [block.key for block in blocks])
        with self._lock:
            for block in blocks:
                self.records.append((block.key, block.parent, block.stream))
                if block.key not in self.outcome:
                    self.blocks[block.key] = block.data.tobytes()
        return [self.outcome.get(block.key, "ok") for block in blocks]

    def read_many_into(self, keys: Sequence[bytes], buffers: Sequence[memoryview]) -> Sequence[str]:
        assert all(np.frombuffer(buffer, np.uint8).ctypes.data % 4096 == 0 for buffer in buffers)
        self._begin("read", keys)
        for name, buffer in zip(keys, buffers, strict=True):
            if name in self.blocks:
                buffer[:] = self.blocks[name]
        return [self.outcome.get(name, "ok" if name in self.blocks else "missing") for name in keys]

    def delete(self, keys: Sequence[bytes]) -> None:
        self._begin("delete", keys)
        with self._lock:
            for name in keys:
                self.blocks.pop(name, None)

    def _begin(self, op: str, keys: Sequence[bytes]) -> None:
        with self._lock:
            self.calls.append((op, len(keys)))
        self.before(op, keys)


class Rig:
    """Device blocks are named by number, their content by the number of a key."""

    def __init__(
        self,
        num_blocks: int = 64,
        num_slots: int = 64,
        disk: DiskStore | None = None,
        settings: MoverSettings | None = None,
        shapes: Sequence[tuple[tuple[int, ...], str]] = SHAPES,
    ) -> None:
        self.arrays = [np.zeros((num_blocks, *shape), dtype=dtype) for shape, dtype in shapes]
        self.layout = BlockLayout(self.arrays)
        self.arena = new_arena(num_slots, self.layout.block_bytes)
        self.woken = threading.Semaphore(0)
        others = set(threading.enumerate())
        self.mover = TierMover(self.layout, self.arena, disk, self.woken.release, settings)
        self.threads = set(threading.enumerate()) - others
        self.ended: dict[int, TransferDone] = {}
        self.step = 0

    def content(self, number: int) -> NDArray[np.uint8]:
        return np.random.default_rng(number).integers(0, 256, self.layout.block_bytes, dtype=np.uint8)

    def fill(self, block: int, number: int) -> None:
        self.layout.scatter([block], self.content(number), [0])

    def wipe(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.layout.scatter([block], np.zeros(self.layout.block_bytes, dtype=np.uint8), [0])

    def bytes_of(self, block: int) -> bytes:
        out = np.empty(self.layout.block_bytes, dtype=np.uint8)
        self.layout.gather([block], out, [0])
        return out.tobytes()

    def holds(self, block: int, number: int) -> bool:
        return self.bytes_of(block) == self.content(number).tobytes()

    def start(self, *transfers: Load | Store | Move) -> None:
        plan = StepPlan(
            self.step,
            loads=tuple(t for t in transfers if isinstance(t, Load)),
            stores=tuple(t for t in transfers if isinstance(t, Store)),
            moves=tuple(t for t in transfers if isinstance(t, Move)),
        )
        self.step += 1
        self.mover.start(plan)

    def wait(self, *ids: int, timeout_s: float = 10.0) -> list[TransferDone]:
        """Until all of these are reported; nothing may be reported twice."""
        until = time.monotonic() + timeout_s
        while not all(id in self.ended for id in ids):
            assert self.woken.acquire(timeout=max(0.0, until - time.monotonic())), f"not reported: {ids}"
            self.collect()
        return [self.ended[id] for id in ids]

    def collect(self) -> None:
        for done in self.mover.done():
            assert done.transfer_id not in self.ended, "reported twice"
            self.ended[done.transfer_id] = done

    def run(self, transfer: Load | Store | Move) -> TransferDone:
        self.start(transfer)
        return self.wait(transfer.transfer_id)[0]

    def keep(self, id: int, numbers: Sequence[int], slots: Sequence[int], generation: int = 1) -> None:
        """Fills blocks 0.. with these contents and stores them."""
        for block, number in enumerate(numbers):
            self.fill(block, number)
        assert not self.run(store(id, numbers, range(len(numbers)), slots, generation)).failed
        self.wipe(range(len(numbers)))


def store(id: int, numbers: Sequence[int], blocks: Sequence[int], slots: Sequence[int], generation: int = 1) -> Store:
    return Store(TransferId(id), 0, keys(numbers), tuple(blocks), tuple(slots), (generation,) * len(numbers))


def load(
    id: int,
    numbers: Sequence[int],
    blocks: Sequence[int],
    slots: Sequence[int],
    generation: int = 1,
    from_disk: int = 0,
) -> Load:
    generations = (generation,) * len(numbers)
    return Load(TransferId(id), 0, keys(numbers), tuple(blocks), tuple(slots), generations, from_disk)


def move(op: str, id: int, numbers: Sequence[int], slots: Sequence[int] = (), generation: int = 1) -> Move:
    parents = (b"", *keys(numbers)[:-1]) if op == "write" else ()
    generations = (generation,) * len(slots)
    return Move(TransferId(id), op, 0, keys(numbers), tuple(slots), generations, parents, "main")
