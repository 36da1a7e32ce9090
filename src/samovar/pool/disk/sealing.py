"""The end of a segment."""

from __future__ import annotations

import errno

from samovar.pool.disk.files import Files, write_all
from samovar.pool.disk.format import footer
from samovar.pool.disk.index import Index
from samovar.pool.disk.record import WriteOutcome
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.settings import Settings
from samovar.pool.disk.stats import Counters

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def write_footer(files: Files, fd: int, segment: Segment, settings: Settings, index: Index, counters: Counters) -> None:
    """Behind the last commit. When it cannot be written the file is cut back and does without."""
    block = footer(segment.entries, segment.tombstones, segment.binding, segment.size_bytes)
    if index.physical_bytes + len(block) > settings.firm_bytes:
        return
    segment.allocated_bytes += len(block)
    counters.add(written_bytes=len(block))
    try:
        write_all(files, fd, [block], segment.size_bytes)
        if settings.fsync:
            files.sync(fd)
    except OSError:
        counters.failed("footer:io")
        try:
            files.truncate(fd, segment.size_bytes)
        except OSError:
            counters.failed("truncate:io")
    try:
        segment.allocated_bytes = files.state(fd).allocated_bytes
    except OSError:
        counters.failed("state:io")


def outcome_of(error: OSError) -> WriteOutcome:
    return "full" if error.errno in _FULL else "io"
