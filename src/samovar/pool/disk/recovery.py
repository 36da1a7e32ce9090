"""Opening a folder: what its segments hold, put together, and what a crash left behind put right.

The newest record of a key is the live one unless a tombstone says otherwise, whatever the order of the files. A
segment without a footer is cut behind its last good record, on the disk, and gets one: the next opening meets neither
the torn tail nor the scan. Nothing is ever appended to a segment found here.
"""

from __future__ import annotations

from dataclasses import dataclass
import errno
import os

from samovar.base.errors import ConfigError
from samovar.pool.disk.appender import punch
from samovar.pool.disk.files import Files, read_all
from samovar.pool.disk.format import (
    BLOCK_BYTES,
    FORMAT_VERSION,
    binding_of,
    named_segment,
    padded,
    parse_superblock,
)
from samovar.pool.disk.index import Index
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.scan import Content, read_content
from samovar.pool.disk.sealing import write_footer
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.settings import INDEX_BYTES, Settings
from samovar.pool.disk.stats import Counters


@dataclass(frozen=True, slots=True)
class Recovered:
    epoch: int
    """Of this opening: larger than any found."""
    next_sequence: int


@dataclass(slots=True)
class _Found:
    segment: Segment
    content: Content
    file_bytes: int


def recover(files: Files, settings: Settings, index: Index, counters: Counters) -> Recovered:
    """Fills the index. Raises ConfigError for files that this program cannot work with, OSError when the folder cannot
    be read."""
    numbers = sorted(n for name in files.list(settings.folder) if (n := named_segment(name)) is not None)
    found: list[_Found] = []
    try:
        for number in numbers:
            loaded = _load(files, settings, counters, number)
            if loaded is not None:
                found.append(loaded)
    except BaseException:
        for loaded in found:
            files.close(loaded.segment.fd)
        raise
    killed: dict[bytes, int] = {}
    for stone in (stone for one in found for stone in one.segment.tombstones):
        killed[stone.key] = max(killed.get(stone.key, -1), stone.sequence)
    for one in found:
        index.restore(one.segment, killed)
    for one in found:
        if not one.content.footed and one.content.readable and one.segment.num_live:
            _mend(files, settings, index, counters, one)
        if settings.punching:
            _punch_dead(files, index, counters, one.segment)
    sequences = [entry.sequence for one in found for entry in one.segment.entries]
    epoch = max((number >> 32 for number in numbers), default=0) + 1
    return Recovered(epoch, max([0, *sequences, *killed.values()]) + 1)


def _load(files: Files, settings: Settings, counters: Counters, number: int) -> _Found | None:
    """None for a file that cannot be read or belongs to somebody else."""
    path = os.path.join(settings.folder, f"{number:016x}.seg")
    try:
        fd = files.open(path, direct=settings.direct)
    except OSError as error:
        _give_up(files, counters, path, error)
        return None
    try:
        state = files.state(fd)
        if not _is_ours(files, fd, settings, counters, path):
            files.close(fd)
            return None
    except OSError as error:
        files.close(fd)
        _give_up(files, counters, path, error)
        return None
    except ConfigError:
        files.close(fd)
        raise
    binding = binding_of(settings.namespace, settings.record_bytes, number)
    content = read_content(files, fd, state.size_bytes, number, binding)
    if content.num_torn:
        counters.failed("recover:torn", content.num_torn)
    if not content.footed:
        counters.failed("recover:scanned")
    if not content.readable:
        counters.failed("recover:io")
    segment = Segment(number, path, binding, fd, content.end_bytes, state.allocated_bytes, sealed=True)
    segment.entries, segment.tombstones = content.entries, content.tombstones
    return _Found(segment, content, state.size_bytes)


def _give_up(files: Files, counters: Counters, path: str, error: OSError) -> None:
    """What the disk has lost goes; anything else (rights, descriptors) somebody has to see to."""
    if error.errno != errno.EIO:
        raise ConfigError(f"the disk segment {path} cannot be opened: {error.strerror or error}") from None
    counters.failed("recover:io")
    try:
        files.remove(path)
    except OSError:
        return


def _is_ours(files: Files, fd: int, settings: Settings, counters: Counters, path: str) -> bool:
    """A damaged or unreadable superblock says nothing: the headers carry all that is needed."""
    buffer = aligned_buffer(BLOCK_BYTES)
    try:
        block = parse_superblock(bytes(buffer[: read_all(files, fd, buffer, 0)]))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        block = None
    if block is None:
        counters.failed("recover:superblock")
        return True
    if block.version != FORMAT_VERSION:
        raise ConfigError(
            f"the disk segment {path} has format {block.version}, this version reads {FORMAT_VERSION}: use another "
            "folder, or remove it"
        )
    if block.namespace != settings.namespace:
        counters.failed("recover:foreign")
        return False
    if block.record_bytes != settings.record_bytes:
        raise ConfigError(
            f"the disk segment {path} holds blocks of {block.record_bytes} bytes, this model's have "
            f"{settings.record_bytes}: use another folder, or remove it"
        )
    return True


def _mend(files: Files, settings: Settings, index: Index, counters: Counters, found: _Found) -> None:
    """Cuts off what follows the last good record, and seals with a footer."""
    segment = found.segment
    try:
        fd = files.open(segment.path)
    except OSError:
        counters.failed("recover:io")
        return
    try:
        if found.file_bytes > segment.size_bytes:
            files.truncate(fd, segment.size_bytes)
            segment.allocated_bytes = files.state(fd).allocated_bytes
        write_footer(files, fd, segment, settings, index, counters)
    except OSError:
        counters.failed("recover:io")
    finally:
        files.close(fd)


def _punch_dead(files: Files, index: Index, counters: Counters, segment: Segment) -> None:
    """A crash may have come between a tombstone and its punch."""
    ends = 2 * BLOCK_BYTES + padded(len(segment.entries) * INDEX_BYTES) + len(segment.tombstones) * BLOCK_BYTES
    if segment.num_live and segment.allocated_bytes > segment.live_bytes + ends:
        punch(files, segment, index.dead(segment), counters)
