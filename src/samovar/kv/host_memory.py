"""The memory of the host tier: address space at first, whose pages are brought in a little ahead of what is stored.

A page's first write can cost several milliseconds where a host has to find the memory first. Stores would pay that
beside everything else they do, holding device blocks meanwhile; a thread of its own does it a few pages ahead of them.
Slots are handed out lowest first, so what was never used lies above everything that was.
"""

from __future__ import annotations

import threading

from samovar.kernels.cpu.pages import HUGE_PAGE_BYTES, populate, zeroed
from samovar.pool.arena import HostArena, arena_bytes

AHEAD_BYTES = 64 << 20
"""Of the highest slot in use: what the stores of a few turns take."""


def new_arena(num_slots: int, slot_bytes: int) -> HostArena:
    """In huge pages where the system has them. Raises MemoryError when there is not so much address space."""
    return HostArena(zeroed(arena_bytes(num_slots, slot_bytes)), num_slots, slot_bytes)


class PagesAhead:
    """Works only after `used` said that something was stored. Ends by `close`."""

    def __init__(self, arena: HostArena, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._arena = arena
        self._ahead_bytes = ahead_bytes
        self._changed = threading.Condition()
        self._used_bytes = 0
        self._done_bytes = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="kv-pages", daemon=True)
        self._thread.start()

    def used(self, slot: int) -> None:
        """A slot is being written."""
        end = self._arena.offset(slot) + self._arena.stride_bytes
        if end > self._used_bytes:
            with self._changed:
                self._used_bytes = max(self._used_bytes, end)
                self._changed.notify()

    @property
    def touched_bytes(self) -> int:
        """Of the arena, from its first byte on: what has pages, or may have."""
        return max(self._used_bytes, self._done_bytes)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _wanted_bytes(self) -> int:
        return min(self._used_bytes + self._ahead_bytes, self._arena.memory.size) if self._used_bytes else 0

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._done_bytes < self._wanted_bytes())
                if self._closed:
                    return
                # What is in use has its pages already.
                start = max(self._done_bytes, self._used_bytes)
                stop = min(start + HUGE_PAGE_BYTES, self._wanted_bytes())
            if stop > start and not populate(self._arena.memory, start, stop):
                return  # the first write does it
            self._done_bytes = stop
