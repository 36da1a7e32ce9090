"""The engine's process with tiers that fail: `kv_faults` starts it in place of `samovar.runner.process`.

Whatever the disk is asked for may be slow, raise EIO or ENOSPC, write only a part, or give back a flipped bit; the host
tier may raise, or hand out flipped bits. Chances are per call. Nothing else of the engine is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
import errno
from inspect import signature
import os
import random
import sys
import time
from typing import TYPE_CHECKING

from samovar.pool.arena import HostArena, Outcome
from samovar.pool.checksum import Bytes
from samovar.pool.disk.files import OsFiles
import samovar.pool.disk.log as disk_log
from samovar.runner.process import main

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

FAULTS = 0.02
SLOW = 0.01
SLOW_S = 1.0
HANGS = 0.0005
HANG_S = 15.0


class FaultyFiles(OsFiles):
    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(os.getpid())

    def _stumble(self, *errors: int) -> None:
        chance = self._random.random()
        if chance < HANGS:
            time.sleep(HANG_S)
        elif chance < SLOW:
            time.sleep(SLOW_S * self._random.random())
        if self._random.random() < FAULTS:
            number = self._random.choice(errors)
            raise OSError(number, os.strerror(number))

    def read(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int) -> int:
        self._stumble(errno.EIO)
        count = super().read(fd, buffers, offset)
        if count and self._random.random() < FAULTS:
            view = memoryview(buffers[0]).cast("B")
            if len(view):
                view[self._random.randrange(min(count, len(view)))] ^= 1 << self._random.randrange(8)
        return count

    def read_hashed(
        self, fd: int, offsets: Sequence[int], buffers: Sequence[memoryview], bindings: Sequence[bytes]
    ) -> Sequence[bytes | int]:
        self._stumble(errno.EIO)
        answers = list(super().read_hashed(fd, offsets, buffers, bindings))
        if self._random.random() < FAULTS:
            answers[self._random.randrange(len(answers))] = self._random.choice([errno.EIO, bytes(16)])
        return answers

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        self._stumble(errno.EIO, errno.ENOSPC)
        if self._random.random() < FAULTS:  # a part of it, as a full disk does
            first = memoryview(buffers[0]).cast("B")
            return super().write(fd, [first[: max(1, len(first) // 2)]], offset)
        return super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        self._stumble(errno.EIO)
        super().sync(fd)


def _break_arena() -> None:
    chance = random.Random(os.getpid() + 1)
    get, put = HostArena.get, HostArena.put

    def faulty_get(
        self: HostArena, slot: int, key: bytes, generation: int, out: Bytes, *, cached: bool = False
    ) -> Outcome:
        roll = chance.random()
        if roll < FAULTS / 4:
            raise RuntimeError("the host tier was told to fail")
        if roll < FAULTS / 2:
            at = self.offset(slot) + chance.randrange(out.size)
            self.memory[at] ^= 1
        return get(self, slot, key, generation, out, cached=cached)

    def faulty_put(self: HostArena, slot: int, key: bytes, generation: int, data: Bytes) -> None:
        if chance.random() < FAULTS / 4:
            raise RuntimeError("the host tier was told to fail")
        put(self, slot, key, generation, data)

    for name, faulty in (("get", faulty_get), ("put", faulty_put)):
        if list(signature(faulty).parameters) != list(signature(getattr(HostArena, name)).parameters):
            raise SystemExit(f"HostArena.{name} is called in another way now: its faults would not be those meant")
        setattr(HostArena, name, faulty)


if __name__ == "__main__":
    disk_log.OsFiles = FaultyFiles  # type: ignore[misc,assignment]
    _break_arena()
    sys.exit(main())
