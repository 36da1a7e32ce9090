"""Appends commits to the active segment. One caller at a time: whoever holds the log's write lock.

A commit is one run of writes and one `fdatasync`; nothing in it counts before both succeeded. After a failure the
segment is cut back to where the commit began and never written again, and no footer is put there: what the kernel did
with pages whose sync failed is unknown, so they are not tried twice. A later opening scans it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
import errno
import os
from typing import TYPE_CHECKING

from samovar.pool.disk.direct import DirectPages, write_direct
from samovar.pool.disk.files import Files, FileState, write_all
from samovar.pool.disk.format import (
    BLOCK_BYTES,
    TOMBSTONES_PER_BLOCK,
    Entry,
    Tombstone,
    binding_of,
    padded,
    record_header,
    segment_name,
    segment_number,
    superblock,
    tombstone_block,
)
from samovar.pool.disk.index import Index
from samovar.pool.disk.record import WriteOutcome
from samovar.pool.disk.sealing import outcome_of, write_footer
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.settings import Settings
from samovar.pool.disk.stats import Counters

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ZEROS = bytes(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class Draft:
    """A record on its way to the disk. `checksum` binds `data` to key and sequence."""

    key: bytes
    parent: bytes
    stream: str
    sequence: int
    checksum: bytes
    data: memoryview

    @property
    def stride_bytes(self) -> int:
        return BLOCK_BYTES + padded(len(self.data))


@dataclass(slots=True)
class _Active:
    segment: Segment
    fd: int
    """Through the page cache: what is written need not lie on page boundaries."""
    num_commits: int = 0


class Writer:
    def __init__(self, files: Files, index: Index, counters: Counters, settings: Settings, epoch: int) -> None:
        self.failure: str | None = None
        """What the system said to the last commit or new segment that failed, for who sets it to None before."""
        self._files = files
        self._index = index
        self._counters = counters
        self._settings = settings
        self._epoch = epoch
        self._num_segments = 0
        self._active: _Active | None = None
        self._pages = DirectPages()
        self._excess_bytes = self._beyond(index.physical_bytes)

    @property
    def active(self) -> Segment | None:
        return self._active.segment if self._active else None

    def room_bytes(self, at_least: int, limit_bytes: int) -> int | WriteOutcome:
        """What the active segment can take, after a new one was begun if `at_least` did not fit. `limit_bytes`, here
        and below: of all files together."""
        end = self._settings.segment_bytes
        if self._active is not None and self._active.segment.size_bytes + at_least > end:
            self.seal()
        if self._active is None:
            failure = self._begin(limit_bytes)
            if failure is not None:
                return failure
        assert self._active is not None
        return end - self._active.segment.size_bytes

    def commit(
        self, tombstones: Sequence[Tombstone], drafts: Sequence[Draft], limit_bytes: int
    ) -> list[Entry] | WriteOutcome:
        """Where the drafts are now, in their order, durably; or why not. They fit into the active segment. The entries
        are not published yet."""
        active = self._active
        assert active is not None
        begin = active.segment.size_bytes
        buffers, entries, end = self._laid_out(active, tombstones, drafts)
        assert end <= self._settings.segment_bytes
        if not self._fits(end - begin, limit_bytes):
            return "full"
        active.segment.allocated_bytes += end - begin
        self._counters.add(written_bytes=end - begin, num_commits=1)
        try:
            cached = self._write(active, buffers, begin)
            state = self._durable(active, begin, end, cached=cached)
        except OSError as error:
            self._abandon(entries)
            return self._failed(error)
        active.segment.size_bytes = end
        active.segment.allocated_bytes = state.allocated_bytes
        active.segment.tombstones.extend(tombstones)
        active.num_commits += 1
        return entries

    def write_tombstones(self, tombstones: Sequence[Tombstone], limit_bytes: int) -> WriteOutcome:
        """All of them, in as few commits as segments allow; stops at the first that fails."""
        rest = list(tombstones)
        while rest:
            room = self.room_bytes(BLOCK_BYTES, limit_bytes)
            if not isinstance(room, int):
                return room
            count = room // BLOCK_BYTES * TOMBSTONES_PER_BLOCK
            done = self.commit(rest[:count], (), limit_bytes)
            if not isinstance(done, list):
                return done
            del rest[:count]
        return "ok"

    def seal(self) -> None:
        """Ends the active segment with its footer, or without one if that fails: it is scanned then."""
        active = self._active
        if active is None:
            return
        self._active = None
        segment = active.segment
        segment.sealed = True
        try:
            write_footer(self._files, active.fd, segment, self._settings, self._index, self._counters)
        finally:
            self._close(active.fd)

    def remove(self, segment: Segment) -> bool:
        """Removes the file of a sealed segment in which nothing is alive. False: it is still there."""
        try:
            self._files.remove(segment.path)
        except FileNotFoundError:
            pass
        except OSError:
            self._counters.failed("remove:io")
            return False
        try:
            # Before its records count as gone: tombstones for them may be dropped from then on.
            self._sync_folder()
        except OSError:
            self._counters.failed("remove:io")
        self._index.retire(segment)
        return True

    def _begin(self, limit_bytes: int) -> WriteOutcome | None:
        """A new active segment; its superblock becomes durable with its first commit."""
        settings = self._settings
        if not self._fits(BLOCK_BYTES, limit_bytes):
            return "full"
        number = segment_number(self._epoch, self._num_segments)
        self._num_segments += 1
        path = os.path.join(settings.folder, segment_name(number))
        opened: list[int] = []
        try:
            opened.append(self._files.open(path, create=True))
            opened.append(self._files.open(path, direct=settings.direct))
            block = superblock(settings.namespace, settings.record_bytes, number)
            write_all(self._files, opened[0], [block], 0)
            self._sync_folder()
        except OSError as error:
            for fd in opened:
                self._close(fd)
            if opened:
                self._discard(path)
            return self._failed(error)
        self._counters.add(written_bytes=BLOCK_BYTES)
        binding = binding_of(settings.namespace, settings.record_bytes, number)
        segment = Segment(number, path, binding, opened[1], BLOCK_BYTES, BLOCK_BYTES)
        self._index.add(segment)
        self._active = _Active(segment, opened[0])
        return None

    def _laid_out(
        self, active: _Active, tombstones: Sequence[Tombstone], drafts: Sequence[Draft]
    ) -> tuple[list[ReadableBuffer], list[Entry], int]:
        segment, commit = active.segment, active.num_commits
        position = segment.size_bytes
        buffers: list[ReadableBuffer] = []
        for first in range(0, len(tombstones), TOMBSTONES_PER_BLOCK):
            part = tombstones[first : first + TOMBSTONES_PER_BLOCK]
            buffers.append(tombstone_block(part, segment.binding, commit, position))
            position += BLOCK_BYTES
        entries: list[Entry] = []
        for draft in drafts:
            at = position + BLOCK_BYTES
            size = len(draft.data)
            entry = Entry(
                draft.key, draft.parent, draft.stream, draft.sequence, segment.number, at, size, draft.checksum
            )
            buffers += [record_header(entry, segment.binding, commit), draft.data]
            if padded(size) > size:
                buffers.append(_ZEROS[: padded(size) - size])
            entries.append(entry)
            position = entry.end
        return buffers, entries, position

    def _write(self, active: _Active, buffers: Sequence[ReadableBuffer], begin: int) -> bool:
        """Whether it went through the page cache."""
        arranged = self._pages.arranged(buffers) if self._settings.direct else None
        if arranged is None:
            write_all(self._files, active.fd, buffers, begin)
            return True
        write_direct(self._files, active.segment.fd, active.fd, arranged, begin)
        return False

    def _durable(self, active: _Active, begin: int, end: int, *, cached: bool) -> FileState:
        if self._settings.fsync:
            self._files.sync(active.fd)
            if self._settings.direct and cached:
                self._uncache(active.fd, begin, end - begin)
        state = self._files.state(active.fd)
        if state.num_names == 0:
            raise FileNotFoundError(errno.ENOENT, "the segment was removed")
        return state

    def _abandon(self, entries: Iterable[Entry]) -> None:
        """The commit that was to hold these failed."""
        active = self._active
        assert active is not None
        self._active = None
        segment = active.segment
        segment.sealed = True
        try:
            self._files.truncate(active.fd, segment.size_bytes)
        except OSError:
            self._index.publish_dead(segment, list(entries))
        try:
            segment.allocated_bytes = self._files.state(active.fd).allocated_bytes
        except OSError:
            self._counters.failed("state:io")
        self._close(active.fd)

    def _failed(self, error: OSError) -> WriteOutcome:
        self.failure = error.strerror or str(error)
        return outcome_of(error)

    def _fits(self, num_bytes: int, limit_bytes: int) -> bool:
        physical = self._index.physical_bytes
        self._excess_bytes = min(self._excess_bytes, self._beyond(physical))
        return physical + num_bytes <= limit_bytes + self._excess_bytes

    def _beyond(self, physical_bytes: int) -> int:
        """More than the capacity allows only where it was made smaller since the files were written: tombstones must
        get through, or nothing could ever be deleted. It comes down with the files."""
        hard = self._settings.hard_bytes
        return 0 if physical_bytes <= hard else physical_bytes - hard + self._settings.segment_bytes

    def _uncache(self, fd: int, offset: int, num_bytes: int) -> None:
        try:
            self._files.uncache(fd, offset, num_bytes)
        except OSError:  # Only advice.
            return

    def _sync_folder(self) -> None:
        if self._settings.fsync:
            self._files.sync_folder(self._settings.folder)

    def _discard(self, path: str) -> None:
        try:
            self._files.remove(path)
        except OSError:
            return

    def _close(self, fd: int) -> None:
        try:
            self._files.close(fd)
        except OSError:
            self._counters.failed("close:io")
