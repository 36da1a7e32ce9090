"""Many transfers at once: every block that is not reported as failed has the bytes it should."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
import random
import threading
import time

from msgspec.structs import replace
import numpy as np
import pytest

from samovar.kv.mover import MoverSettings
from tests.kv.mover_parts import LARGE_SHAPES, SHAPES, MemoryDisk, Rig, key, load, move, store


def test_store_evict_all_reload_under_sixty_fourfold_load() -> None:
    """1,000 blocks go to the host tier and to disk; the device is wiped; 64 loads at a time bring them back, each block
    several times, in chains of random lengths from slots and from disk."""
    rig = Rig(num_blocks=1000, num_slots=1200, disk=MemoryDisk())
    numbers, rng = list(range(1000)), random.Random(0)
    rig.keep(1, numbers, numbers)
    assert not rig.run(move("write", -1, numbers, numbers)).failed
    free, order = numbers.copy(), rng.sample(range(1000), 1000)
    spare, ids, generation = list(range(1000, 1200)), count(2), 1
    open_loads: dict[int, tuple[list[int], list[int], list[int]]] = {}
    restored = 0
    while restored < 4000:
        while len(open_loads) < 64 and len(free) >= 12:
            chain = [order[(rng.randrange(1000) + n) % 1000] for n in range(rng.randint(1, 12))]
            from_disk = min(rng.choice([0, 0, 1, 3]), len(chain), len(spare))
            slots = [*chain[: len(chain) - from_disk], *(spare.pop() for _ in range(from_disk))]
            blocks = [free.pop(rng.randrange(len(free))) for _ in chain]
            id = next(ids)
            rig.start(load(id, chain, blocks, slots, generation, from_disk))
            open_loads[id] = (chain, blocks, slots)
        rig.collect()
        for id in [id for id in open_loads if id in rig.ended]:
            chain, blocks, slots = open_loads.pop(id)
            assert not rig.ended[id].failed
            assert all(rig.holds(block, number) for block, number in zip(blocks, chain, strict=True))
            rig.wipe(blocks)
            free += blocks
            spare += [slot for slot in slots if slot >= 1000]
            restored += len(chain)
        rig.woken.acquire(timeout=0.01)
    rig.wait(*open_loads)
    rig.arena.check()
    rig.mover.close()


class Hammer:
    """Slots are given to other keys while others load from them, and damaged: what pins forbid. A device block, and the
    right to write a slot, belong to one thread at a time."""

    def __init__(self, seconds: float, shapes: Sequence[tuple[tuple[int, ...], str]]) -> None:
        self.rig = Rig(num_blocks=96, num_slots=12, disk=MemoryDisk(), shapes=shapes)
        for number in range(16):
            self.rig.fill(number, number)  # blocks 0..15 stay as they are: what is stored
        self.contents = [self.rig.content(number).tobytes() for number in range(16)]
        self.until = time.monotonic() + seconds
        self.ids, self.generations = count(1), count(1)
        self.plans = threading.Lock()  # plans are submitted by one thread at a time
        self.slots = [threading.Lock() for _ in range(12)]
        self.holds: list[tuple[int, int]] = [(0, 0)] * 12  # number and generation, of the last store
        self.ended: dict[int, tuple[int, ...]] = {}
        self.over = threading.Event()
        self.reported = threading.Condition()
        self.counts = {"right": 0, "wrong": 0, "refused": 0}

    def run(self, transfer) -> tuple[int, ...]:
        """Failed positions."""
        with self.plans:
            self.rig.start(transfer)
        with self.reported:
            assert self.reported.wait_for(lambda: transfer.transfer_id in self.ended, 20)
            return self.ended.pop(transfer.transfer_id)

    def report(self) -> None:
        while not self.over.is_set():
            self.rig.woken.acquire(timeout=0.1)
            with self.reported:
                for done in self.rig.mover.done():
                    assert done.transfer_id not in self.ended
                    self.ended[done.transfer_id] = done.failed
                self.reported.notify_all()

    def storer(self, seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.until:
            slot, number, generation = rng.randrange(12), rng.randrange(16), next(self.generations)
            with self.slots[slot]:
                if rng.random() < 0.15:
                    at = self.rig.arena.offset(slot) + rng.randrange(self.rig.layout.block_bytes)
                    self.rig.arena.memory[at] ^= 1 << rng.randrange(8)
                elif rng.random() < 0.3 and self.holds[slot][1]:
                    old, written = self.holds[slot]
                    self.run(move("write", -next(self.ids), [old], [slot], written))
                else:
                    assert self.run(store(next(self.ids), [number], [number], [slot], generation)) == ()
                    self.holds[slot] = (number, generation)

    def loader(self, seed: int, blocks: range) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.until:
            slots = rng.sample(range(12), rng.randint(1, 6))
            wanted = [self.holds[slot] for slot in slots]
            transfer = load(next(self.ids), [n for n, _ in wanted], blocks[: len(slots)], slots)
            transfer = replace(transfer, generations=tuple(generation for _, generation in wanted))
            self.judge(self.run(transfer), transfer.blocks, [n for n, _ in wanted])

    def disk_loader(self, seed: int, blocks: range) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.until:
            slot, number, generation = rng.randrange(12), rng.randrange(16), next(self.generations)
            with self.slots[slot]:
                self.holds[slot] = (number, generation)
                transfer = load(next(self.ids), [number], [blocks[0]], [slot], generation, from_disk=1)
                self.judge(self.run(transfer), transfer.blocks, [number])

    def judge(self, failed: tuple[int, ...], blocks: tuple[int, ...], numbers: list[int]) -> None:
        for position, (block, number) in enumerate(zip(blocks, numbers, strict=True)):
            right = self.rig.bytes_of(block) == self.contents[number]
            with self.reported:
                self.counts["refused" if position in failed else "right" if right else "wrong"] += 1


@pytest.mark.parametrize("shapes", [SHAPES, LARGE_SHAPES], ids=["small", "large"])
def test_loads_stores_and_slots_that_change_hands(shapes: Sequence[tuple[tuple[int, ...], str]]) -> None:
    hammer = Hammer(1.2, shapes)
    reporter = threading.Thread(target=hammer.report)
    threads = [threading.Thread(target=hammer.storer, args=(seed,)) for seed in range(3)]
    threads += [threading.Thread(target=hammer.loader, args=(9 + n, range(20 + 8 * n, 28 + 8 * n))) for n in range(4)]
    threads += [threading.Thread(target=hammer.disk_loader, args=(20 + n, range(70 + n, 71 + n))) for n in range(2)]
    for thread in (reporter, *threads):
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    hammer.over.set()
    reporter.join()
    assert hammer.counts["wrong"] == 0
    assert hammer.counts["right"] > 100 and hammer.counts["refused"] > 20, hammer.counts
    stats = hammer.rig.mover.stats()
    assert stats.open_transfers == 0 and stats.errors == 0
    assert stats.failed_blocks.get("checksum", 0) and stats.failed_blocks.get("generation", 0)
    hammer.rig.mover.check()
    hammer.rig.mover.close()


def test_transfers_that_are_late_at_random() -> None:
    """Reads take 0 to 40 ms, transfers are given up after 15: each is reported once, and no block or slot changes after
    its transfer was."""
    rng = random.Random(1)
    disk = MemoryDisk(lambda op, names: time.sleep(rng.random() * 0.04))
    rig = Rig(num_blocks=200, num_slots=200, disk=disk, settings=MoverSettings(deadline_s=0.015))
    disk.blocks |= {key(n): rig.content(n).tobytes() for n in range(200)}
    for first in range(0, 200, 4):
        numbers = range(first, first + 4)
        rig.start(load(1 + first, numbers, numbers, numbers, from_disk=4))
        time.sleep(0.002)
    rig.wait(*range(1, 200, 4))
    frozen, memory = [array.tobytes() for array in rig.arrays], rig.arena.memory.copy()
    late = sum(done.reason == "late" for done in rig.ended.values())
    arrived = [n for n in range(200) if rig.holds(n, n)]
    for first in range(0, 200, 4):
        failed = rig.ended[1 + first].failed
        assert all(first + n in arrived for n in range(4) if n not in failed)
    time.sleep(0.2)
    rig.collect()
    assert len(rig.ended) == 50 and late
    assert all(array.tobytes() == before for array, before in zip(rig.arrays, frozen, strict=True))
    assert np.array_equal(rig.arena.memory, memory)
    rig.arena.check()
    rig.mover.close()
