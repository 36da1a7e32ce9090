"""What the fault run knows of every key, in memory that outlives a killed process.

A key has one owner among the writing threads, which says what it is about to do before it does it. So at any moment,
also the moment of a SIGKILL, the state says which versions of the key may be on the disk.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

MISSING = 0
"""The version of a key that is not there; real ones count from 1."""

ROWS = ("version", "other", "undecided", "clock", "highest", "damaged", "revived")
COUNTERS = (
    "reads",
    "read_ok",
    "read_missing",
    "read_damaged",
    "wrong_bytes",
    "lost",
    "came_back",
    "unexpected",
    "writes",
    "written",
    "refused",
    "overwritten",
    "deleted",
    "bit_flips",
    "cut_segments",
    "torn_writes",
    "most_believed_bytes",
)
THREADS = 8


class State:
    """Rows by key: `version` is acknowledged; while `undecided`, `other` may be there as well; `clock` is odd while
    the owner acts; `highest` was ever tried; `damaged` is the newest version that was damaged on purpose; `revived`:
    a tombstone of the key was. Counters are per thread, so that none is lost."""

    def __init__(self, path: Path, num_keys: int, *, create: bool = False) -> None:
        shape = (len(ROWS) * num_keys + THREADS * len(COUNTERS),)
        self._all = np.memmap(path, np.int64, "w+" if create else "r+", shape=shape)
        rows = self._all[: len(ROWS) * num_keys].reshape(len(ROWS), num_keys)
        self.version, self.other, self.undecided, self.clock, self.highest, self.damaged, self.revived = rows
        self._counters = self._all[len(ROWS) * num_keys :].reshape(THREADS, len(COUNTERS))
        self.num_keys = num_keys

    def count(self, thread: int, name: str, number: int = 1) -> None:
        self._counters[thread, COUNTERS.index(name)] += number

    def at_most(self, thread: int, name: str, number: int) -> None:
        at = COUNTERS.index(name)
        self._counters[thread, at] = max(self._counters[thread, at], number)

    def total(self, name: str) -> int:
        return int(self._counters[:, COUNTERS.index(name)].sum())

    def begin(self, key: int, other: int) -> None:
        """The owner is about to make it `other`."""
        self.clock[key] += 1
        self.other[key] = other
        self.undecided[key] = 1
        self.highest[key] = max(self.highest[key], other)

    def pause(self, key: int) -> None:
        """It is that now for readers; after a crash it may be either."""
        self.clock[key] += 1

    def end(self, key: int, version: int) -> None:
        """It is `version` now, for ever."""
        self.version[key] = version
        self.undecided[key] = 0
        self.clock[key] += self.clock[key] % 2

    def damage(self, key: int, version: int) -> None:
        self.damaged[key] = max(self.damaged[key], version)

    def found(self, key: int, version: int) -> None:
        """After a restart, when nobody acts."""
        self.version[key] = version
        self.undecided[key] = 0
        self.clock[key] = 0

    def allowed(self, key: int, found: int) -> str:
        """ "" when `found` may be there, else what is wrong with it."""
        possible = [int(self.version[key])] + [int(self.other[key])] * int(self.undecided[key])
        if found in possible:
            return ""
        if found == MISSING:
            return "" if self.damaged[key] in possible else "lost"
        return "" if self.revived[key] else "came_back"


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def size_of(number: int) -> int:
    """4 to 16 KiB, mostly no multiple of a page."""
    return 16_384 if number % 5 == 0 else 4096 + number * 1237 % 12_289


def data_of(number: int, version: int) -> bytes:
    """Different in every 16 bytes for every number and version."""
    word = number.to_bytes(8, "big") + version.to_bytes(8, "big")
    size = size_of(number)
    return (word * (size // 16 + 1))[:size]


def version_in(number: int, data: bytes) -> int | None:
    """Which version these bytes are, every one of them; None when they are no version of this key."""
    version = int.from_bytes(data[8:16], "big")
    return version if data == data_of(number, version) else None
