"""The host tier's slots: what was sealed comes back byte for byte, or it is refused with the right reason."""

from __future__ import annotations

import threading
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
import numpy as np
from numpy.typing import NDArray
import pytest

from samovar.kernels.cpu.pages import zeroed
from samovar.pool.arena import HostArena, arena_bytes
from samovar.pool.checksum import block_checksum

SLOT_BYTES = 5000


def arena(num_slots: int = 4, slot_bytes: int = SLOT_BYTES) -> HostArena:
    return HostArena(zeroed(arena_bytes(num_slots, slot_bytes)), num_slots, slot_bytes)


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def content(seed: int, num_bytes: int = SLOT_BYTES) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, num_bytes, dtype=np.uint8)


def test_slots_are_aligned_and_apart() -> None:
    slots = arena()
    views = [slots.open(slot) for slot in range(4)]
    assert all(view.ctypes.data % 4096 == 0 and view.size == SLOT_BYTES for view in views)
    for slot, view in enumerate(views):
        view[:] = slot + 1
    assert [set(view.tolist()) for view in views] == [{1}, {2}, {3}, {4}]


def test_what_was_put_comes_back() -> None:
    slots, out = arena(), np.empty(SLOT_BYTES, dtype=np.uint8)
    slots.put(2, key(7), 3, content(7))
    assert slots.get(2, key(7), 3, out) == "ok"
    assert np.array_equal(out, content(7))


@pytest.mark.parametrize(("other_key", "generation", "size"), [(8, 3, 100), (7, 2, 100), (7, 3, 99)])
def test_another_key_generation_or_length(other_key: int, generation: int, size: int) -> None:
    slots = arena()
    slots.put(0, key(7), 3, content(7, 100))
    assert slots.get(0, key(other_key), generation, np.empty(size, dtype=np.uint8)) == "generation"


def test_an_open_slot_gives_nothing() -> None:
    slots, out = arena(), np.empty(SLOT_BYTES, dtype=np.uint8)
    assert slots.get(0, key(7), 0, out) == "generation"
    slots.put(0, key(7), 1, content(7))
    slots.open(0)
    assert slots.get(0, key(7), 1, out) == "generation"
    assert slots.sealed(0) is None


@pytest.mark.parametrize("at", [0, 1, 2500, SLOT_BYTES - 1])
@pytest.mark.parametrize("bit", [0, 7])
def test_every_flipped_bit_is_seen(at: int, bit: int) -> None:
    slots, out = arena(), np.empty(SLOT_BYTES, dtype=np.uint8)
    slots.put(3, key(5), 1, content(5))
    slots.memory[slots.offset(3) + at] ^= 1 << bit
    assert slots.get(3, key(5), 1, out) == "checksum"
    with pytest.raises(AssertionError, match="slot 3 is not as sealed"):
        slots.check()


def test_a_seal_of_the_wrong_content() -> None:
    """Right key and generation, bytes of another block with their own good checksum: it is bound to both."""
    slots, out = arena(), np.empty(SLOT_BYTES, dtype=np.uint8)
    slots.open(0)[:] = content(6)
    slots.seal(0, key(5), 1, block_checksum(content(6), key(6), 1), SLOT_BYTES)
    assert slots.get(0, key(5), 1, out) == "checksum"
    slots.seal(0, key(5), 1, block_checksum(content(6), key(5), 2), SLOT_BYTES)
    assert slots.get(0, key(5), 1, out) == "checksum"


class ArenaMachine(RuleBasedStateMachine):
    """Against a dict of what every slot should answer."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = arena(3, 64)
        self.sealed: dict[int, tuple[int, int, bytes]] = {}
        self.damaged: set[int] = set()

    @rule(slot=st.integers(0, 2), name=st.integers(0, 3), generation=st.integers(0, 3), data=st.binary(max_size=64))
    def put(self, slot: int, name: int, generation: int, data: bytes) -> None:
        self.slots.put(slot, key(name), generation, np.frombuffer(data, dtype=np.uint8))
        self.sealed[slot] = (name, generation, data)
        self.damaged.discard(slot)

    @rule(slot=st.integers(0, 2))
    def begin_to_write(self, slot: int) -> None:
        self.slots.open(slot)[:10] = 1
        self.sealed.pop(slot, None)
        self.damaged.discard(slot)

    @rule(slot=st.integers(0, 2), at=st.integers(0, 63))
    def flip(self, slot: int, at: int) -> None:
        if slot in self.sealed and slot not in self.damaged and at < len(self.sealed[slot][2]):
            self.slots.memory[self.slots.offset(slot) + at] ^= 4
            self.damaged.add(slot)

    @rule(slot=st.integers(0, 2), name=st.integers(0, 3), generation=st.integers(0, 3))
    def get(self, slot: int, name: int, generation: int) -> None:
        known = self.sealed.get(slot, (-1, -1, b""))
        out = np.empty(len(known[2]), dtype=np.uint8)
        outcome = self.slots.get(slot, key(name), generation, out)
        if known[:2] != (name, generation):
            assert outcome == "generation"
        elif slot in self.damaged:
            assert outcome == "checksum"
        else:
            assert outcome == "ok" and out.tobytes() == known[2]

    @invariant()
    def holds(self) -> None:
        if not self.damaged:
            self.slots.check()


TestArenaMachine = ArenaMachine.TestCase
TestArenaMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_readers_beside_a_writer_never_get_wrong_bytes() -> None:
    """One slot is given to other keys over and over while two threads read it."""
    slots, stop = arena(1, 200_000), threading.Event()
    contents = [content(seed, 200_000) for seed in range(3)]
    written = [0]
    wrong: list[int] = []
    outcomes: set[str] = set()

    def write() -> None:
        while not stop.is_set():
            generation = written[0] + 1
            slots.put(0, key(generation % 3), generation, contents[generation % 3])
            written[0] = generation
            time.sleep(generation % 4 * 2e-4)

    def read() -> None:
        out = np.empty(200_000, dtype=np.uint8)
        while not stop.is_set():
            generation = written[0]
            outcome = slots.get(0, key(generation % 3), generation, out)
            outcomes.add(outcome)
            if outcome == "ok" and not np.array_equal(out, contents[generation % 3]):
                wrong.append(generation)

    threads = [threading.Thread(target=work) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    time.sleep(0.6)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and "ok" in outcomes and "generation" in outcomes
