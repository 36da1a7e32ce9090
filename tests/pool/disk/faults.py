"""A file layer in which any call can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import os
from typing import TYPE_CHECKING

from samovar.pool.disk.files import HASHED_FROM_BYTES, FileState, OsFiles

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Killed(BaseException):
    """The process ended inside this call; nobody can catch that."""


class Cut(Exception):
    """Of a write: so many bytes reach the file, then `then` happens."""

    def __init__(self, num_bytes: int, then: BaseException) -> None:
        super().__init__(num_bytes)
        self.num_bytes = num_bytes
        self.then = then


Rule = Callable[[str, int], BaseException | None]
"""Of the name of a call and how many calls of that name came before: what happens instead, None for nothing."""


class FaultFiles(OsFiles):
    def __init__(self, rule: Rule = lambda name, count: None, hashed_from_bytes: float = HASHED_FROM_BYTES) -> None:
        super().__init__(hashed_from_bytes)
        self.rule = rule
        self.calls: dict[str, int] = {}
        self.written: list[int] = []
        """Bytes of each write that was asked for."""

    def _before(self, name: str) -> None:
        count = self.calls.get(name, 0)
        self.calls[name] = count + 1
        fault = self.rule(name, count)
        if fault is not None:
            raise fault

    def list(self, folder: str) -> list[str]:
        self._before("list")
        return super().list(folder)

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> int:
        self._before("create" if create else "open")
        return super().open(path, create=create, direct=direct)

    def state(self, fd: int) -> FileState:
        self._before("state")
        return super().state(fd)

    def read(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int) -> int:
        self._before("read")
        return super().read(fd, buffers, offset)

    def read_hashed(
        self, fd: int, offsets: Sequence[int], buffers: Sequence[memoryview], bindings: Sequence[bytes]
    ) -> Sequence[bytes | int]:
        self._before("read")
        return super().read_hashed(fd, offsets, buffers, bindings)

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        whole = b"".join(bytes(buffer) for buffer in buffers)
        self.written.append(len(whole))
        try:
            self._before("write")
        except Cut as cut:
            write_cached(fd, whole[: cut.num_bytes], offset)
            raise cut.then from None
        return super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        self._before("sync")
        super().sync(fd)

    def sync_folder(self, folder: str) -> None:
        self._before("sync_folder")
        super().sync_folder(folder)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._before("truncate")
        super().truncate(fd, size_bytes)

    def punch(self, fd: int, offset: int, num_bytes: int) -> None:
        self._before("punch")
        super().punch(fd, offset, num_bytes)

    def next_data(self, fd: int, offset: int) -> int | None:
        self._before("next_data")
        return super().next_data(fd, offset)

    def uncache(self, fd: int, offset: int, num_bytes: int) -> None:
        self._before("uncache")
        super().uncache(fd, offset, num_bytes)

    def remove(self, path: str) -> None:
        self._before("remove")
        super().remove(path)


def write_cached(fd: int, data: bytes, offset: int) -> int:
    """Through the page cache, whatever the descriptor does: any number of bytes at any place."""
    cached = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    try:
        return os.pwrite(cached, data, offset)
    finally:
        os.close(cached)


def once(name: str, number: int, fault: BaseException) -> Rule:
    """The `number`th call of that name, from 0 on."""
    return lambda called, count: fault if called == name and count == number else None


def always(name: str, fault: BaseException) -> Rule:
    return lambda called, _: fault if called == name else None
