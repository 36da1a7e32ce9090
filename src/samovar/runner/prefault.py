"""Brings pages of the KV pool into memory before a step needs them.

The pool is address space until it is written. A page's first write costs 0.2 ms per 2 MB on bare metal and 5 to 7 ms in
a guest whose host has to find the memory first, and a pool has two arrays per layer: 16 tokens that begin a new page in
each of 60 arrays held a step up for 0.4 s on a small virtual machine.
"""

from __future__ import annotations

import threading

from samovar.kernels.cpu.pages import HUGE_PAGE_BYTES, populate
from samovar.kernels.packed_ops import KVTiles
from samovar.models.batch import KVCache

AHEAD_TOKENS = 16_384
"""Of the highest block in use, while the engine has nothing to compute: a few long prompts."""


class Prefault:
    """A thread of its own. It works while the runner idles; beside steps only when less than one page per array is left
    ahead of them. Blocks are handed out lowest first, so what was never used lies above everything that was."""

    def __init__(self, cache: KVCache, ahead_tokens: int = AHEAD_TOKENS) -> None:
        """Only tiled pools have memory of this kind; for others it does nothing. Ends by `close`."""
        self._arrays: tuple[KVTiles, ...] = tuple(array for pair in cache.tiles for array in pair)
        self._num_blocks = self._arrays[0].shape[0] if self._arrays else 0
        self._block_bytes = self._arrays[0].nbytes // self._num_blocks if self._arrays else 1
        self._step_blocks = max(1, HUGE_PAGE_BYTES // self._block_bytes)
        self._ahead_blocks = max(ahead_tokens // cache.block_tokens, self._step_blocks)
        self._changed = threading.Condition()
        self._used = 0
        self._done = 0
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="prefault", daemon=True)
        if self._arrays:
            self._thread.start()

    def step(self, highest_block: int) -> None:
        """A step begins that writes blocks up to this one; -1 for none."""
        with self._changed:
            self._busy = True
            self._used = max(self._used, highest_block + 1)
            self._wake()

    def idle(self) -> None:
        """The step has ended."""
        with self._changed:
            self._busy = False
            self._wake()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._arrays:
            self._thread.join()

    @property
    def num_populated(self) -> int:
        """Blocks whose pages are there, from the first one on."""
        return self._done

    def _wake(self) -> None:
        # Not for nothing: the runner's threads want the cores.
        if self._wanted():
            self._changed.notify()

    def _wanted(self) -> bool:
        ahead = self._step_blocks if self._busy else self._ahead_blocks
        return self._done < min(self._used + ahead, self._num_blocks)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted())
                if self._closed:
                    return
                # What is in use is there already.
                start = max(self._done, self._used)
            if not self._populate(start, min(start + self._step_blocks, self._num_blocks)):
                return

    def _populate(self, start: int, stop: int) -> bool:
        for array in self._arrays:
            if self._closed:
                return False
            if not populate(array, start * self._block_bytes, stop * self._block_bytes):
                return False
        self._done = stop
        return True
