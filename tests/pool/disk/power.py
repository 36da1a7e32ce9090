"""A file layer that knows what a power cut may take: writes since the last sync of their file, in any selection of
sectors; sizes and truncations since then; names since the last sync of their folder.

Real files hold the present; beside them each file's durable bytes are kept in memory, and what was done since. So the
real disk need not be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
from pathlib import Path
import random
from typing import TYPE_CHECKING

from samovar.pool.disk.files import OsFiles

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SECTOR_BYTES = 512


class PowerFiles(OsFiles):
    def __init__(self) -> None:
        super().__init__()
        self._paths: dict[int, str] = {}
        self._durable: dict[str, bytearray] = {}
        """By path: what a cut cannot take."""
        self._since: dict[str, list[tuple[int, bytes]]] = {}
        self._named: set[str] = set()
        """Paths whose names are durable."""
        self._removed: dict[str, bytearray] = {}
        """Removed, but not durably: a cut may bring them back."""

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> int:
        fd = super().open(path, create=create, direct=direct)
        self._paths[fd] = path
        if path not in self._durable:
            present = b"" if create else Path(path).read_bytes()
            self._durable[path] = bytearray(present)
            self._since[path] = []
            if not create:
                self._named.add(path)
        return fd

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        count = super().write(fd, buffers, offset)
        whole = b"".join(bytes(buffer) for buffer in buffers)[:count]
        self._since[self._paths[fd]].append((offset, whole))
        return count

    def sync(self, fd: int) -> None:
        path = self._paths[fd]
        if path in self._durable:
            self._durable[path] = bytearray(Path(path).read_bytes())
            self._since[path] = []

    def sync_folder(self, folder: str) -> None:
        self._named = {path for path in self._durable if os.path.exists(path)}
        self._removed = {}

    def remove(self, path: str) -> None:
        super().remove(path)
        if path in self._named and path in self._durable:
            self._removed[path] = self._durable[path]
        self._durable.pop(path, None)
        self._since.pop(path, None)

    def cut(self, rng: random.Random) -> None:
        """Makes the files on the disk what might be found after the power came back."""
        for path, durable in list(self._durable.items()):
            if path not in self._named and rng.random() < 0.5:
                Path(path).unlink(missing_ok=True)
                continue
            _write(path, _torn(durable, self._since[path], rng))
        for path, durable in self._removed.items():
            if rng.random() < 0.5:
                _write(path, durable)


def _torn(durable: bytearray, since: list[tuple[int, bytes]], rng: random.Random) -> bytes:
    content = bytearray(durable)
    share = rng.choice((0.0, 0.3, 0.7, 1.0))
    for offset, data in since:
        for begin in range(0, len(data), SECTOR_BYTES):
            if rng.random() >= share:
                continue
            at, piece = offset + begin, data[begin : begin + SECTOR_BYTES]
            if len(content) < at:
                content.extend(bytes(at - len(content)))
            content[at : at + len(piece)] = piece
    return bytes(content)


def _write(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
