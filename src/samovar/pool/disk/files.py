"""What the log asks of the operating system: the one place where it does, so that tests can let any call fail.

Every method may raise OSError. Descriptors are plain integers; reads and writes name their offset, so a descriptor may
be used by many threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
from dataclasses import dataclass
import errno
import fcntl
import math
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

try:
    from samovar.pool._native import DirectReads
except ImportError:  # installed without a compiler
    DirectReads = None  # type: ignore[assignment,misc]

MOST_BUFFERS = 1024
"""Of one `preadv` or `pwritev` (IOV_MAX)."""

HASHED_FROM_BYTES = 64 << 10
"""Below it, many records by one plain read are faster."""
ENDED = -1

_KEEP_SIZE = 1
_PUNCH_HOLE = 2
_SECTOR_BYTES = 512
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FileState:
    size_bytes: int
    allocated_bytes: int
    """What it occupies on the disk: less than its size where it has holes."""
    num_names: int
    """0 once somebody removed it."""


class Files(Protocol):
    def list(self, folder: str) -> list[str]: ...

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> int:
        """For reading and writing. `create`: it must not exist yet. `direct`: past the page cache; offsets, lengths and
        addresses are then multiples of 4096, and OSError with EINVAL says that the file system cannot do it."""
        ...

    def close(self, fd: int) -> None: ...

    def state(self, fd: int) -> FileState: ...

    def read(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int) -> int:
        """Bytes read: less than asked for at the end of the file."""
        ...

    @property
    def hashed_from_bytes(self) -> float:
        """From this size on `read_hashed` is to be used; infinity where there is none."""
        ...

    def read_hashed(
        self, fd: int, offsets: Sequence[int], buffers: Sequence[memoryview], bindings: Sequence[bytes]
    ) -> Sequence[bytes | int]:
        """Fills each buffer from its offset on. Of each: the checksum of its bytes and of what binds them, or an errno,
        or ENDED when the file ends before. What has arrived is hashed while the rest is read. `direct` asks for offsets
        and addresses that are multiples of 4096, not for lengths; the file goes on to the next multiple."""
        ...

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        """Bytes written, possibly less than given."""
        ...

    def sync(self, fd: int) -> None:
        """Data, and the size of the file."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Names: what was created in it, what was removed from it."""
        ...

    def truncate(self, fd: int, size_bytes: int) -> None: ...

    def punch(self, fd: int, offset: int, num_bytes: int) -> None:
        """Gives the range's space back; it reads as zeros. EOPNOTSUPP where the file system cannot."""
        ...

    def next_data(self, fd: int, offset: int) -> int | None:
        """Where the next bytes are that are no hole, None when only a hole follows."""
        ...

    def uncache(self, fd: int, offset: int, num_bytes: int) -> None:
        """These bytes, which are on the disk, need no place in the page cache."""
        ...

    def remove(self, path: str) -> None: ...


class OsFiles:
    """The real ones."""

    def __init__(self, hashed_from_bytes: float = HASHED_FROM_BYTES) -> None:
        """`hashed_from_bytes`: where there are such reads; at least 2048."""
        self._fallocate = _fallocate()
        self._reads = None if DirectReads is None else DirectReads()
        self.hashed_from_bytes = hashed_from_bytes if self._reads and self._reads.available else math.inf

    def list(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        if direct:
            flags |= os.O_DIRECT
        return os.open(path, flags, 0o600)

    def close(self, fd: int) -> None:
        os.close(fd)

    def state(self, fd: int) -> FileState:
        found = os.fstat(fd)
        return FileState(found.st_size, found.st_blocks * _SECTOR_BYTES, found.st_nlink)

    def read(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int) -> int:
        return os.preadv(fd, buffers, offset)

    def read_hashed(
        self, fd: int, offsets: Sequence[int], buffers: Sequence[memoryview], bindings: Sequence[bytes]
    ) -> Sequence[bytes | int]:
        assert self._reads is not None
        return self._reads.read(fd, offsets, buffers, bindings)

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        return os.pwritev(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_folder(self, folder: str) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def punch(self, fd: int, offset: int, num_bytes: int) -> None:
        if self._fallocate is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if self._fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, num_bytes) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def next_data(self, fd: int, offset: int) -> int | None:
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def uncache(self, fd: int, offset: int, num_bytes: int) -> None:
        os.posix_fadvise(fd, offset, num_bytes, os.POSIX_FADV_DONTNEED)

    def remove(self, path: str) -> None:
        os.unlink(path)


class FolderLock:
    """Held by one process at a time, and given back by the kernel however that process ends."""

    def __init__(self, path: str) -> None:
        """Raises BlockingIOError when another holds it, other OSErrors when it cannot be made."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    @property
    def is_in_place(self) -> bool:
        """False once its path names nothing, or another file: who looks there does not see that it is held."""
        try:
            return self._fd >= 0 and os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_all(files: Files, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
    """Every byte, whatever single calls write. Returns how many; raises OSError."""
    rest = [view for view in (memoryview(buffer).cast("B") for buffer in buffers) if len(view)]
    first, position = 0, offset
    while first < len(rest):
        written = files.write(fd, rest[first : first + MOST_BUFFERS], position)
        if written <= 0:
            raise OSError(errno.EIO, "nothing could be written")
        position += written
        while first < len(rest) and written >= len(rest[first]):
            written -= len(rest[first])
            first += 1
        if written:
            rest[first] = rest[first][written:]
    return position - offset


def read_all(files: Files, fd: int, buffer: WriteableBuffer, offset: int) -> int:
    """Fills the buffer as far as the file reaches. Returns how many bytes; raises OSError."""
    view = memoryview(buffer).cast("B")
    done = 0
    while done < len(view):
        count = files.read(fd, [view[done:]], offset + done)
        done += count
        # Only the end of a file lies inside a page, and direct reads cannot begin there.
        if count <= 0 or done % _PAGE_BYTES:
            break
    return done


def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The C library's, which Python has no name for with a mode; the call leaves the GIL."""
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]
