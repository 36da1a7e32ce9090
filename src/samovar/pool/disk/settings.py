"""Sizes of a log: what its capacity means, and how large a segment is.

`capacity_bytes` is a promise about the disk: the files never occupy more than 1.1 times as much. Inside it:

    packed     1.00   what live records may take, headers and their share of each segment's ends included
    pressure   1.02   above it compaction looks for dead bytes
    soft       1.04   above it no new record is written
    firm       1.05   above it no tombstone is written for what was deleted
    hard       1.09   above it nothing is written: compaction ends here, whose room nobody else may take, since it is
                      what makes room again (the rest is for the file system's own blocks, counted as the file's)

Where holes cannot be punched, dead bytes come back only by copying live ones; live records are then held to 0.85, since
copying costs the more the fuller the disk is.
"""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.pool.disk.format import BLOCK_BYTES, MAX_NAMESPACE_BYTES, padded

SEGMENTS = 64
MOST_SEGMENT_BYTES = 1 << 30
"""So many full segments make up a capacity. Where holes are punched segments are kept until a tenth of them is left,
and there must not be thousands of open files."""
SEGMENTS_COPIED = 256
MOST_SEGMENT_COPIED_BYTES = 256 << 20
"""Where they are not, a segment comes free by copying all that is alive in it: smaller ones."""
FEWEST_SEGMENTS = 32
LEAST_RECORDS = 2
INDEX_BYTES = 256
"""Of a footer's index, per record."""
ENDS_BYTES = 3 * BLOCK_BYTES
"""Superblock, end of the footer, and what the file system needs to know the holes: what a segment costs beside its
records and their index."""


@dataclass(frozen=True, slots=True)
class Settings:
    folder: str
    """Of the namespace."""
    namespace: bytes
    record_bytes: int
    """The largest payload."""
    capacity_bytes: int
    segment_bytes: int
    """Where a segment ends, footer apart."""
    fsync: bool
    direct: bool
    """The file system reads past the page cache."""
    punching: bool
    """The file system punches holes."""

    @property
    def stride_bytes(self) -> int:
        return BLOCK_BYTES + padded(self.record_bytes)

    @property
    def live_limit_bytes(self) -> int:
        """Of live records, by stride. Compaction can always get segments filled by half, with their ends."""
        data = (self.segment_bytes - BLOCK_BYTES) // self.stride_bytes * self.stride_bytes
        ends = ENDS_BYTES + padded(data // self.stride_bytes * INDEX_BYTES)
        packed = self.capacity_bytes * data // (data + 2 * ends)
        return packed if self.punching else packed * 85 // 100

    @property
    def pressure_bytes(self) -> int:
        return self.capacity_bytes * 102 // 100

    @property
    def soft_bytes(self) -> int:
        return self.capacity_bytes * 104 // 100

    @property
    def firm_bytes(self) -> int:
        return self.capacity_bytes * 105 // 100

    @property
    def hard_bytes(self) -> int:
        return self.capacity_bytes * 109 // 100

    @property
    def max_records(self) -> int:
        """So many of the largest payload always fit."""
        return self.live_limit_bytes // self.stride_bytes


def segment_bytes_for(capacity_bytes: int, record_bytes: int, asked: int | None, *, punching: bool) -> int:
    """Raises ConfigError when the sizes do not go together."""
    if record_bytes <= 0:
        raise ConfigError(f"record_bytes is {record_bytes}: a record holds at least one byte")
    least = least_capacity_bytes(record_bytes) // FEWEST_SEGMENTS
    if capacity_bytes < least_capacity_bytes(record_bytes):
        raise ConfigError(
            f"a disk capacity of {capacity_bytes} bytes is too small for blocks of {record_bytes} bytes: at least "
            f"{least_capacity_bytes(record_bytes)} are needed"
        )
    most = capacity_bytes // FEWEST_SEGMENTS
    if asked is None:
        number, limit = (SEGMENTS, MOST_SEGMENT_BYTES) if punching else (SEGMENTS_COPIED, MOST_SEGMENT_COPIED_BYTES)
        return max(least, min(capacity_bytes // number, limit))
    if not least <= asked <= most:
        raise ConfigError(f"segment_bytes is {asked}: it must be between {least} and {most} with this capacity")
    return asked


def least_capacity_bytes(record_bytes: int) -> int:
    return FEWEST_SEGMENTS * (BLOCK_BYTES + LEAST_RECORDS * (BLOCK_BYTES + padded(record_bytes)))


def capacity_within(num_bytes: int) -> int:
    """The largest whose files never occupy more than so much."""
    return num_bytes * 10 // 11


def records_planned(capacity_bytes: int, record_bytes: int) -> int:
    """How many of the largest payload a log of this size holds where the file system punches holes. Raises ConfigError
    when the sizes do not go together."""
    segment_bytes = segment_bytes_for(capacity_bytes, record_bytes, None, punching=True)
    return Settings("", b"", record_bytes, capacity_bytes, segment_bytes, True, True, True).max_records


def check_namespace(namespace: bytes) -> None:
    if not 1 <= len(namespace) <= MAX_NAMESPACE_BYTES:
        raise ConfigError(f"the disk's namespace has {len(namespace)} bytes: 1 to {MAX_NAMESPACE_BYTES} are possible")
