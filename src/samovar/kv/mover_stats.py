"""What a mover counts, and the snapshot that it hands out."""

from __future__ import annotations

import logging
import threading
from typing import Literal

import msgspec

_log = logging.getLogger(__name__)

Direction = Literal["device_to_host", "host_to_device", "disk_to_host", "host_to_disk"]


class Flow(msgspec.Struct, frozen=True):
    """What arrived in one direction."""

    blocks: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Of threads at work, checksums included, also for what did not arrive: two threads for a second are two."""


class MoverStats(msgspec.Struct, frozen=True):
    """Counters count from the start and only grow; `open_transfers` and `host_touched_bytes` are as of now."""

    device_to_host: Flow
    host_to_device: Flow
    """Of blocks that came from disk too."""
    disk_to_host: Flow
    host_to_disk: Flow
    deleted_blocks: int = 0
    """Off the disk."""
    failed_blocks: dict[str, int] = {}
    """As reported, by the reason of their transfer; a load's blocks behind its first failed one are among them."""
    late_transfers: int = 0
    errors: int = 0
    """Exceptions of a tier, one per block that they cost."""
    open_transfers: int = 0
    host_touched_bytes: int = 0
    """Of the host tier's memory: what has been written, and what is kept ready ahead of it."""


class Counters:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flows: dict[Direction, Flow] = {
            "device_to_host": Flow(),
            "host_to_device": Flow(),
            "disk_to_host": Flow(),
            "host_to_disk": Flow(),
        }
        self._deleted = 0
        self._failed: dict[str, int] = {}
        self._late = 0
        self._errors = 0
        self._logged: set[type[Exception]] = set()

    def moved(self, direction: Direction, blocks: int, num_bytes: int, seconds: float) -> None:
        with self._lock:
            old = self._flows[direction]
            self._flows[direction] = Flow(old.blocks + blocks, old.bytes + num_bytes, old.seconds + seconds)

    def deleted(self, blocks: int) -> None:
        with self._lock:
            self._deleted += blocks

    def failed(self, reason: str, blocks: int, *, late: bool) -> None:
        """Of one transfer."""
        with self._lock:
            if blocks:
                self._failed[reason] = self._failed.get(reason, 0) + blocks
            self._late += late

    def error(self, error: Exception) -> None:
        """The first of each class goes to the log with its traceback, so that a broken tier does not flood it."""
        with self._lock:
            self._errors += 1
            first = type(error) not in self._logged
            self._logged.add(type(error))
        if first:
            _log.warning("a KV tier failed; further failures of this kind are only counted", exc_info=error)

    def snapshot(self, open_transfers: int, host_touched_bytes: int) -> MoverStats:
        with self._lock:
            return MoverStats(
                **self._flows,
                deleted_blocks=self._deleted,
                failed_blocks=dict(self._failed),
                late_transfers=self._late,
                errors=self._errors,
                open_transfers=open_transfers,
                host_touched_bytes=host_touched_bytes,
            )
