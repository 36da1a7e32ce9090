"""Recomputes from the files what the log believes."""

from __future__ import annotations

from itertools import pairwise

from samovar.pool.disk.files import Files, read_all
from samovar.pool.disk.format import BLOCK_BYTES, Entry, named_segment, parse_block
from samovar.pool.disk.index import Index
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.settings import Settings


def check_files(files: Files, index: Index, settings: Settings) -> None:
    """Raises AssertionError. Nothing may be written meanwhile."""
    segments = index.segments()
    on_disk = {n for name in files.list(settings.folder) if (n := named_segment(name)) is not None}
    assert {segment.number for segment in segments} <= on_disk, "a segment's file is missing"
    for segment in segments:
        state = files.state(segment.fd)
        assert state.size_bytes >= segment.size_bytes, f"{segment.path} is shorter than its records"
        # What is not synced may yet take another block or two for the file system's own notes.
        difference = abs(state.allocated_bytes - segment.allocated_bytes)
        assert difference <= 2 * BLOCK_BYTES, f"{segment.path} occupies not what is believed"
        ends = sorted((entry.begin, entry.end) for entry in segment.entries)
        assert all(first[1] <= second[0] for first, second in pairwise(ends)), "records overlap"
        for entry in index.live(segment):
            _check_header(files, segment, entry)
    physical = sum(files.state(segment.fd).allocated_bytes for segment in segments)
    believed = index.physical_bytes
    assert physical <= settings.hard_bytes, f"the files occupy {physical} bytes ({believed} are believed)"


def _check_header(files: Files, segment: Segment, entry: Entry) -> None:
    buffer = aligned_buffer(BLOCK_BYTES)
    read_all(files, segment.fd, buffer, entry.begin)
    parsed = parse_block(bytes(buffer), segment.binding, segment.number, entry.begin)
    assert parsed is not None and parsed.entry == entry, f"{segment.path} has another record at {entry.begin}"
