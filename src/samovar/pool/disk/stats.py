"""What the log counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import threading


@dataclass(frozen=True, slots=True)
class DiskStats:
    """Sizes are as of now, counts since the log was opened."""

    num_records: int
    num_segments: int
    live_bytes: int
    """Of live records, with their headers and fillings."""
    dead_bytes: int
    """The rest of `physical_bytes`: dead records, tombstones, superblocks, footers."""
    physical_bytes: int
    """What the files occupy, as the file system counts it."""
    capacity_bytes: int
    direct: bool
    punching: bool
    num_owed_tombstones: int
    """Deleted, but a crash now would bring them back."""
    written_records: int
    """Acknowledged."""
    payload_bytes: int
    """Theirs."""
    written_bytes: int
    """Everything that went to the disk: with headers, tombstones, footers, copies, and what failed."""
    compacted_bytes: int
    """Part of it: copies made by compaction."""
    num_commits: int
    read_records: int
    read_bytes: int
    failures: dict[str, int]
    """By "read:checksum", "read:io", "write:full", "write:io", "compact:checksum", "recover:torn" and the like."""

    @property
    def write_amplification(self) -> float:
        return self.written_bytes / self.payload_bytes if self.payload_bytes else 0.0


class Counters:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._read_records = 0
        self._read_bytes = 0

    def read(self, num_records: int, num_bytes: int) -> None:
        """By itself, since it comes with every read."""
        with self._lock:
            self._read_records += num_records
            self._read_bytes += num_bytes

    def add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def failed(self, what: str, count: int = 1) -> None:
        with self._lock:
            self._failures[what] += count

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._counts[name]

    @property
    def reads(self) -> tuple[int, int]:
        """Records, bytes."""
        with self._lock:
            return self._read_records, self._read_bytes

    def failures(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._failures.items()))
