"""Reads what a segment file holds: from its footer, or block by block where there is none.

A scan does not trust lengths it cannot check: after a block that is no header, or that cannot be read, it goes on with
the next one, so that a damaged header costs its record and no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from samovar.pool.checksum import block_checksum
from samovar.pool.disk.files import Files, read_all
from samovar.pool.disk.format import (
    BLOCK_BYTES,
    Entry,
    Footer,
    Tombstone,
    padded,
    parse_block,
    parse_footer_end,
    parse_footer_index,
)
from samovar.pool.disk.memory import aligned_buffer

WINDOW_BYTES = 1 << 20
_NEAR_BYTES = 128 << 10
"""Headers no farther apart than this are read with what lies between them."""
_UNREADABLE_BLOCKS = 16
"""So many in a row, each of which may take the disk a while, and the rest of the file counts as gone too."""


@dataclass(slots=True)
class Content:
    """What was committed to a segment."""

    entries: list[Entry] = field(default_factory=list)
    tombstones: list[Tombstone] = field(default_factory=list)
    end_bytes: int = BLOCK_BYTES
    """Where the last of it ends."""
    footed: bool = False
    """A footer follows, which ends the file."""
    num_torn: int = 0
    """Records of the last commit whose payload is not what their header says."""
    readable: bool = True
    """False: the disk failed on the way."""


def read_content(files: Files, fd: int, size_bytes: int, segment: int, binding: bytes) -> Content:
    """`fd` may be a direct one. Never raises OSError: what cannot be read is not there."""
    found = _read_footer(files, fd, size_bytes, binding)
    if found is not None:
        footer, end = found
        return Content(footer.entries, footer.tombstones, end, footed=True)
    return _scan(files, fd, size_bytes, segment, binding)


def _read_footer(files: Files, fd: int, size_bytes: int, binding: bytes) -> tuple[Footer, int] | None:
    """With the offset where it begins."""
    place = size_bytes - BLOCK_BYTES
    if place < BLOCK_BYTES or size_bytes % BLOCK_BYTES:
        return None
    try:
        end = parse_footer_end(_read(files, fd, place, BLOCK_BYTES), binding, place)
        if end is None:
            return None
        begin, length, checksum = end
        index = parse_footer_index(_read(files, fd, begin, padded(length))[:length], checksum)
    except OSError:
        return None
    return None if index is None else (index, begin)


def _scan(files: Files, fd: int, size_bytes: int, segment: int, binding: bytes) -> Content:
    content = Content()
    window = _Window(files, fd)
    last_commit = -1
    last: list[Entry] = []
    position, unreadable = BLOCK_BYTES, 0
    while position + BLOCK_BYTES <= size_bytes and unreadable < _UNREADABLE_BLOCKS:
        text = window.block(position)
        unreadable = unreadable + 1 if text is None else 0
        content.readable = content.readable and text is not None
        parsed = None if text is None else parse_block(text, binding, segment, position)
        if parsed is None or (parsed.entry is not None and parsed.entry.end > size_bytes):
            after = window.next_data(position + BLOCK_BYTES)
            if after is None:
                break
            position = after
            continue
        if parsed.commit != last_commit:
            last_commit, last = parsed.commit, []
        position += BLOCK_BYTES
        content.tombstones.extend(parsed.tombstones)
        if parsed.entry is not None:
            last.append(parsed.entry)
            content.entries.append(parsed.entry)
            position = parsed.entry.end
        content.end_bytes = position
    _drop_torn(files, fd, content, last)
    return content


def _drop_torn(files: Files, fd: int, content: Content, last: list[Entry]) -> None:
    """The last commit may have been cut off by a crash, before it was acknowledged: headers are there, payloads not."""
    torn = {entry.offset for entry in last if not _intact(files, fd, entry)}
    if not torn:
        return
    content.num_torn = len(torn)
    content.entries = [entry for entry in content.entries if entry.offset not in torn]
    if content.readable and last[-1].offset in torn and last[-1].end == content.end_bytes:
        kept = [entry.end for entry in last if entry.offset not in torn]
        content.end_bytes = max(kept, default=last[0].begin)


def _intact(files: Files, fd: int, entry: Entry) -> bool:
    try:
        payload = _read(files, fd, entry.offset, padded(entry.num_bytes))[: entry.num_bytes]
    except OSError:
        return False
    return block_checksum(payload, entry.key, entry.sequence) == entry.checksum


def _read(files: Files, fd: int, offset: int, num_bytes: int) -> bytes:
    buffer = aligned_buffer(num_bytes)
    return bytes(buffer[: read_all(files, fd, buffer, offset)])


class _Window:
    """Blocks of a file, read ahead where headers are near each other."""

    def __init__(self, files: Files, fd: int) -> None:
        self._files = files
        self._fd = fd
        self._buffer = aligned_buffer(WINDOW_BYTES)
        self._begin = 0
        self._end = 0
        self._last = 0

    def block(self, position: int) -> bytes | None:
        """4096 bytes; None when they cannot be read."""
        if not self._begin <= position <= self._end - BLOCK_BYTES:
            size = WINDOW_BYTES if position - self._last <= _NEAR_BYTES else BLOCK_BYTES
            # What lies ahead may be what cannot be read.
            if not self._read(position, size) and not (size > BLOCK_BYTES and self._read(position, BLOCK_BYTES)):
                self._begin = self._end = 0
                self._last = position
                return None
        self._last = position
        at = position - self._begin
        return bytes(self._buffer[at : at + BLOCK_BYTES])

    def _read(self, position: int, size: int) -> bool:
        try:
            self._end = position + read_all(self._files, self._fd, self._buffer[:size], position)
        except OSError:
            return False
        self._begin = position
        return True

    def next_data(self, position: int) -> int | None:
        """The first block from here on that is no hole."""
        try:
            found = self._files.next_data(self._fd, position)
        except OSError:  # Not every file system can tell.
            return position
        return None if found is None else max(position, found // BLOCK_BYTES * BLOCK_BYTES)
