"""The disk as the mover sees it; `pool.disk.DiskLog` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from samovar.base.ids import BlockKey
from samovar.pool.disk.record import Record


class DiskStore(Protocol):
    """Calls come from several threads. Outcomes are "ok" or why not: "missing", "checksum", "io", "full";
    of a write also "gone": with these it has lost every record that it had."""

    def write(self, records: Sequence[Record], /) -> Sequence[str]:
        """Returns once those that are "ok" would survive a crash."""
        ...

    def read_many_into(self, keys: Sequence[BlockKey], buffers: Sequence[memoryview], /) -> Sequence[str]:
        """Verified after the copy. A buffer has the size of a block and lies on a page boundary."""
        ...

    def delete(self, keys: Sequence[BlockKey], /) -> object:
        """Those it does not have are nothing to it."""
        ...


class NoDisk:
    """Where no disk is configured: it has nothing and takes nothing."""

    def write(self, records: Sequence[Record], /) -> Sequence[str]:
        return ["full"] * len(records)

    def read_many_into(self, keys: Sequence[BlockKey], buffers: Sequence[memoryview], /) -> Sequence[str]:
        return ["missing"] * len(keys)

    def delete(self, keys: Sequence[BlockKey], /) -> object:
        return None
