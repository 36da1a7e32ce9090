"""Small logs, and blocks whose bytes follow from their key and a version."""

from __future__ import annotations

import os
from pathlib import Path

from samovar.pool.disk.files import Files
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.record import Block

NAMESPACE = b"model-of-the-tests"
RECORD_BYTES = 4096
STRIDE_BYTES = 8192
CAPACITY_BYTES = 2 << 20
SEGMENT_BYTES = 64 << 10


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def data_of(number: int, version: int = 0, num_bytes: int = RECORD_BYTES) -> bytes:
    """Different for every number and version, in every 16 bytes."""
    word = number.to_bytes(8, "big") + version.to_bytes(8, "big")
    return (word * (num_bytes // 16 + 1))[:num_bytes]


def block(number: int, version: int = 0, *, num_bytes: int = RECORD_BYTES, stream: str = "s") -> Block:
    parent = key_of(number - 1) if number else b""
    return Block(key_of(number), parent, stream, data_of(number, version, num_bytes))


def open_log(
    folder: Path,
    *,
    files: Files | None = None,
    capacity_bytes: int = CAPACITY_BYTES,
    segment_bytes: int | None = SEGMENT_BYTES,
    punching: bool = True,
    background: bool = False,
    fsync: bool = True,
    record_bytes: int = RECORD_BYTES,
    direct: bool = True,
) -> DiskLog:
    return DiskLog.open(
        str(folder),
        NAMESPACE,
        record_bytes,
        capacity_bytes,
        segment_bytes=segment_bytes,
        files=files,
        punching=punching,
        background=background,
        fsync=fsync,
        direct=direct,
    )


def read(log: DiskLog, number: int, num_bytes: int = RECORD_BYTES) -> bytes | str:
    """The bytes, or why there are none."""
    buffer = aligned_buffer(num_bytes)
    outcome = log.read_into(key_of(number), buffer)
    return bytes(buffer) if outcome == "ok" else outcome


def segment_paths(folder: Path) -> list[Path]:
    return sorted((folder / NAMESPACE.hex()).glob("*.seg"))


def physical_bytes(folder: Path) -> int:
    """As `du` counts the segments."""
    return sum(path.stat().st_blocks * 512 for path in segment_paths(folder))


def abandon(log: DiskLog) -> None:
    """What the kernel does for a process that was killed: descriptors and lock are gone, nothing is written."""
    if log._background is not None:
        log._background.stop()
    if log._writer._active is not None:
        os.close(log._writer._active.fd)
    log._index.close()
    log._folder_lock.release()
