"""The host tier's bytes: slots of equal size in memory that somebody else allocated, each with a seal.

A slot is open (being written, or empty) or sealed. A seal names the key and the generation that the slot was written
for and the checksum of what was written, bound to both. Seals are whole objects, replaced in one assignment, so a
reader sees an old one or a new one and never half of each.

Invariants: every slot begins at a multiple of 4096 bytes, as O_DIRECT wants it; what `get` calls "ok" is, byte for
byte, what was sealed under that key and generation, whoever wrote into the slot meanwhile, because the bytes that are
verified are the copy that is delivered.

Who may use which slot is decided elsewhere: calls on different slots may run at once, writers of one slot must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from samovar.pool.checksum import Bytes, block_checksum, copy_with_checksum

ALIGNMENT_BYTES = 4096

Outcome = Literal["ok", "generation", "checksum"]
"""Of a `get`. "generation": the slot is open, or sealed for another key or generation. "checksum": its bytes are not
those that were sealed."""


@dataclass(frozen=True, slots=True)
class Seal:
    key: bytes
    generation: int
    checksum: bytes
    """16 bytes, of the payload bound to key and generation."""
    num_bytes: int
    """Of the payload, from the slot's first byte on."""


class HostArena:
    """`memory` is kept alive, and its pages come when they are first written."""

    def __init__(self, memory: Bytes, num_slots: int, slot_bytes: int) -> None:
        """`memory`: at least `arena_bytes(num_slots, slot_bytes)`, at a multiple of 4096; `slot_bytes`: the largest
        payload."""
        assert num_slots > 0 and slot_bytes > 0
        assert memory.ctypes.data % ALIGNMENT_BYTES == 0, "the memory does not begin at a page"
        assert memory.size >= arena_bytes(num_slots, slot_bytes), "the memory is too small for the slots"
        self.memory = memory
        self.num_slots = num_slots
        self.slot_bytes = slot_bytes
        self.stride_bytes = slot_stride_bytes(slot_bytes)
        self._seals: list[Seal | None] = [None] * num_slots

    def offset(self, slot: int) -> int:
        """Of the slot's first byte in `memory`."""
        assert 0 <= slot < self.num_slots
        return slot * self.stride_bytes

    def open(self, slot: int) -> Bytes:
        """Breaks the seal, if there is one; returns the slot, `slot_bytes` long, to be written."""
        at = self.offset(slot)
        self._seals[slot] = None
        return self.memory[at : at + self.slot_bytes]

    def seal(self, slot: int, key: bytes, generation: int, checksum: bytes, num_bytes: int) -> None:
        """`checksum`: `block_checksum` of the payload, which was written before."""
        assert num_bytes <= self.slot_bytes
        self._seals[slot] = Seal(key, generation, checksum, num_bytes)

    def put(self, slot: int, key: bytes, generation: int, data: Bytes) -> None:
        """Copies `data` into the slot and seals it. `data` must not change meanwhile."""
        target = self.open(slot)[: data.size]
        checksum = copy_with_checksum(target, data, data, key, generation)
        self.seal(slot, key, generation, checksum, data.size)

    def get(self, slot: int, key: bytes, generation: int, out: Bytes, *, cached: bool = False) -> Outcome:
        """Copies the payload to `out`, which has its size and is the caller's alone; `cached`: to be read next. Unless
        the answer is "ok", what is in `out` must not be used."""
        at = self.offset(slot)
        seal = self._seals[slot]
        if seal is None or seal.key != key or seal.generation != generation or seal.num_bytes != out.size:
            return "generation"
        source = self.memory[at : at + out.size]
        if copy_with_checksum(out, source, out, key, generation, cached=cached) == seal.checksum:
            return "ok"
        # Given away while it was copied: that is no damage.
        return "checksum" if self._seals[slot] is seal else "generation"

    def sealed(self, slot: int) -> Seal | None:
        return self._seals[slot]

    def check(self) -> None:
        """Every sealed slot holds what its seal says. Only while nobody writes."""
        assert len(self._seals) == self.num_slots
        for slot, seal in enumerate(self._seals):
            if seal is None:
                continue
            at = self.offset(slot)
            data = self.memory[at : at + seal.num_bytes].data
            assert 0 <= seal.num_bytes <= self.slot_bytes, f"slot {slot} is sealed beyond its end"
            assert block_checksum(data, seal.key, seal.generation) == seal.checksum, f"slot {slot} is not as sealed"


def slot_stride_bytes(slot_bytes: int) -> int:
    """From the beginning of one slot to the next."""
    return -(-slot_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def arena_bytes(num_slots: int, slot_bytes: int) -> int:
    """Of the memory that so many slots need."""
    return num_slots * slot_stride_bytes(slot_bytes)
