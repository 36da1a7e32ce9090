"""The sub-folder of a namespace: made, locked, and asked what its file system can do."""

from __future__ import annotations

from dataclasses import dataclass
import errno
import os

from samovar.base.errors import ConfigError
from samovar.pool.disk.files import Files, FolderLock, read_all, write_all
from samovar.pool.disk.format import BLOCK_BYTES
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.settings import Settings, check_namespace, segment_bytes_for

LOCK_NAME = "lock"
PROBE_NAME = "probe"
_CANNOT = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS))


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller of `DiskLog.open` wants, where it has a say."""

    namespace: bytes
    record_bytes: int
    capacity_bytes: int
    segment_bytes: int | None
    fsync: bool
    direct: bool
    punching: bool


def take_folder(files: Files, folder: str, asked: Asked) -> tuple[Settings, FolderLock]:
    """Raises ConfigError that names the folder. The caller gives the lock back."""
    check_namespace(asked.namespace)
    # Before anything is made: sizes that cannot work leave no trace.
    segment_bytes_for(asked.capacity_bytes, asked.record_bytes, asked.segment_bytes, punching=asked.punching)
    inner = os.path.join(folder, asked.namespace.hex())
    try:
        os.makedirs(inner, mode=0o700, exist_ok=True)
        lock = FolderLock(os.path.join(inner, LOCK_NAME))
    except BlockingIOError:
        raise ConfigError(
            f"the disk folder {folder} is in use: another process keeps this model's blocks there"
        ) from None
    except OSError as error:
        raise ConfigError(f"the disk folder {folder} cannot be used: {error.strerror or error}") from None
    try:
        direct, punching = _abilities(files, inner, asked)
    except OSError as error:
        lock.release()
        raise ConfigError(f"the disk folder {folder} cannot be used: {error.strerror or error}") from None
    size = segment_bytes_for(asked.capacity_bytes, asked.record_bytes, asked.segment_bytes, punching=punching)
    return (
        Settings(inner, asked.namespace, asked.record_bytes, asked.capacity_bytes, size, asked.fsync, direct, punching),
        lock,
    )


def device_of(folder: str) -> int:
    """The file system that it is on or, where it is not there, would be made on. Raises OSError."""
    path = os.path.abspath(folder)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev


def available_bytes(folder: str, namespace: bytes) -> int | None:
    """What the files of a namespace may come to: their own room and what is free beside them. None where the file
    system does not say."""
    try:
        system = os.statvfs(folder)
        own = _segment_bytes(os.path.join(folder, namespace.hex()))
    except OSError:
        return None
    return own + system.f_bavail * system.f_frsize if system.f_blocks else None


def _segment_bytes(inner: str) -> int:
    if not os.path.isdir(inner):
        return 0
    with os.scandir(inner) as entries:
        return sum(entry.stat().st_blocks * 512 for entry in entries if entry.name.endswith(".seg"))


def others_bytes(folder: str, namespace: bytes) -> int:
    """What blocks of other models, dtypes or layouts take in the same folder. Nobody else counts or removes them."""
    total = 0
    try:
        names = [name for name in os.listdir(folder) if name != namespace.hex() and _is_hex(name)]
        for name in names:
            total += _segment_bytes(os.path.join(folder, name))
    except OSError:  # only a report
        return total
    return total


def _is_hex(name: str) -> bool:
    try:
        return bool(bytes.fromhex(name))
    except ValueError:
        return False


def _abilities(files: Files, folder: str, asked: Asked) -> tuple[bool, bool]:
    """(reads past the page cache, punches holes), found by trying. Raises OSError when it cannot even write."""
    path = os.path.join(folder, PROBE_NAME)
    if PROBE_NAME in files.list(folder):
        files.remove(path)
    fd = files.open(path, create=True)
    try:
        write_all(files, fd, [bytes([1]) * (2 * BLOCK_BYTES)], 0)
        files.sync(fd)
        # What is not synced is in the page cache, and reading past it would write it out piece by piece.
        direct = asked.direct and asked.fsync and _reads_direct(files, path)
        return direct, asked.punching and _punches(files, fd)
    finally:
        files.close(fd)
        files.remove(path)


def _reads_direct(files: Files, path: str) -> bool:
    try:
        fd = files.open(path, direct=True)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    try:
        return read_all(files, fd, aligned_buffer(BLOCK_BYTES), 0) == BLOCK_BYTES
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    finally:
        files.close(fd)


def _punches(files: Files, fd: int) -> bool:
    before = files.state(fd).allocated_bytes
    try:
        files.punch(fd, 0, BLOCK_BYTES)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return files.state(fd).allocated_bytes < before
