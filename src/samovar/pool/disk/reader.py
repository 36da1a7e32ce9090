"""Reads records: one `preadv` per run of neighbours, one checksum over each payload where it lies, no other copy.

No lock is held while the disk is asked. The segment is pinned, so its descriptor stays open; but a record may be
overwritten, deleted (its place punched to zeros) or moved by compaction meanwhile. So a payload that does not pass is
damaged only if its entry is still the current one; else it is looked up again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import threading
from typing import TYPE_CHECKING, Literal

import numpy as np

from samovar.pool.checksum import block_checksum
from samovar.pool.disk.files import MOST_BUFFERS, Files
from samovar.pool.disk.format import BLOCK_BYTES, Entry, padded
from samovar.pool.disk.index import Index, Pinned
from samovar.pool.disk.memory import aligned_buffer, is_aligned
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.stats import Counters

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ReadOutcome = Literal["ok", "missing", "checksum", "io"]
"""Anything but "ok" is a miss, and what is in the buffer must not be used. "checksum": the bytes are not those that
were written; "io": they could not be read. Either way the record is gone from then on."""

RUN_BYTES = 8 << 20
"""A run ends here, so that its payloads are verified soon after they came."""
_BUFFERS_PER_RECORD = 3
_LOOKUPS = 8

_Wanted = tuple[int, Entry, Segment, memoryview]


class _Scratch(threading.local):
    """Pages of one thread: what lies between payloads goes to the first, ends of payloads to the others."""

    pages = memoryview(b"")
    bounce = memoryview(b"")

    def page(self, number: int) -> memoryview:
        if len(self.pages) < (number + 1) * BLOCK_BYTES:
            self.pages = aligned_buffer((number + 1) * BLOCK_BYTES)
        return self.pages[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]

    def record(self, num_bytes: int) -> memoryview:
        if len(self.bounce) < num_bytes:
            self.bounce = aligned_buffer(num_bytes)
        return self.bounce[:num_bytes]


class Reader:
    """Methods are for any thread."""

    def __init__(self, files: Files, index: Index, counters: Counters, *, direct: bool) -> None:
        self._files = files
        self._index = index
        self._counters = counters
        self._direct = direct
        self._scratch = _Scratch()

    def read(self, keys: Sequence[bytes], buffers: Sequence[WriteableBuffer]) -> tuple[ReadOutcome, ...]:
        """Each buffer is at least as long as its record; more than the record is not written. On 4096-byte boundaries
        nothing is copied."""
        assert len(keys) == len(buffers)
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        outcomes: list[ReadOutcome] = ["missing"] * len(keys)
        again: list[int] = []
        pinned = self._index.pin(keys)
        try:
            for run in self._runs(pinned, views):
                for (position, entry, _, _), outcome in zip(run, self._read_run(run), strict=True):
                    if outcome != "ok" and not self._drop(entry, outcome):
                        again.append(position)
                    outcomes[position] = outcome
        finally:
            self._index.unpin(found[1] for found in pinned if found is not None)
        for position in again:
            outcomes[position] = self._read_again(keys[position], views[position])
        self._count(outcomes, pinned)
        return tuple(outcomes)

    def fetch(self, entry: Entry, segment: Segment, view: memoryview) -> ReadOutcome:
        """One record of a pinned segment; nothing is dropped."""
        payload = view[: entry.num_bytes]
        if self._direct and not is_aligned(payload):
            bounce = self._scratch.record(padded(entry.num_bytes))[: entry.num_bytes]
            if not self._into(segment, entry.offset, [(entry, bounce)]):
                return "io"
            np.copyto(np.frombuffer(payload, np.uint8), np.frombuffer(bounce, np.uint8))
        elif not self._into(segment, entry.offset, [(entry, payload)]):
            return "io"
        return _verified(entry, payload)

    def _read_again(self, key: bytes, view: memoryview) -> ReadOutcome:
        """The record was not where it had been looked up."""
        for _ in range(_LOOKUPS):
            found = self._index.pin([key])[0]
            if found is None:
                return "missing"
            try:
                outcome = self.fetch(*found, view)
            finally:
                self._index.unpin([found[1]])
            if outcome == "ok" or self._drop(found[0], outcome):
                return outcome
        return "missing"

    def _drop(self, entry: Entry, outcome: ReadOutcome) -> bool:
        """False when it is not the current record of its key any more."""
        dropped = self._index.forget_entry(entry)
        if dropped:
            self._counters.failed(f"read:{outcome}")
        return dropped

    def _runs(self, pinned: Sequence[Pinned | None], views: Sequence[memoryview]) -> Iterator[list[_Wanted]]:
        """Neighbours on the disk, together; one whose buffer is not aligned, alone."""
        wanted = [(n, *found, views[n]) for n, found in enumerate(pinned) if found is not None]
        wanted.sort(key=lambda item: (item[2].number, item[1].offset))
        run: list[_Wanted] = []
        for item in wanted:
            _, entry, segment, view = item
            assert len(view) >= entry.num_bytes, "the buffer is shorter than the record"
            follows = bool(run) and run[-1][2] is segment and run[-1][1].end == entry.begin
            fits = bool(run) and entry.end - run[0][1].offset <= RUN_BYTES
            if run and not (follows and fits and len(run) < MOST_BUFFERS // _BUFFERS_PER_RECORD):
                yield run
                run = []
            if self._direct and not is_aligned(view):
                if run:
                    yield run
                    run = []
                yield [item]
            else:
                run.append(item)
        if run:
            yield run

    def _read_run(self, run: list[_Wanted]) -> list[ReadOutcome]:
        if len(run) > 1:
            parts = [(entry, view[: entry.num_bytes]) for _, entry, _, view in run]
            if self._into(run[0][2], run[0][1].offset, parts):
                return [_verified(entry, payload) for entry, payload in parts]
        # Alone, or one of them could not be read: the others are not to suffer for it.
        return [self.fetch(entry, segment, view) for _, entry, segment, view in run]

    def _into(self, segment: Segment, offset: int, parts: Sequence[tuple[Entry, memoryview]]) -> bool:
        """One call for neighbouring records. Whole pages where reads are direct: what rounds a payload up to one, and
        the headers between, land in scratch pages."""
        buffers: list[memoryview] = []
        ends: list[tuple[memoryview, memoryview]] = []
        for number, (entry, payload) in enumerate(parts):
            if number:
                buffers.append(self._scratch.page(0))
            whole = entry.num_bytes // BLOCK_BYTES * BLOCK_BYTES
            if whole:
                buffers.append(payload[:whole])
            if whole < entry.num_bytes:
                page = self._scratch.page(len(ends) + 1)
                buffers.append(page)
                ends.append((payload[whole:], page))
        wanted = sum(len(buffer) for buffer in buffers)
        try:
            count = self._files.read(segment.fd, buffers, offset)
        except OSError:
            return False
        if count != wanted:
            return False
        for end, page in ends:
            end[:] = page[: len(end)]
        return True

    def _count(self, outcomes: Sequence[ReadOutcome], pinned: Sequence[Pinned | None]) -> None:
        good = [
            found[0].num_bytes for outcome, found in zip(outcomes, pinned, strict=True) if outcome == "ok" and found
        ]
        self._counters.add(read_records=len(good), read_bytes=sum(good))


def _verified(entry: Entry, payload: memoryview) -> ReadOutcome:
    return "ok" if block_checksum(payload, entry.key, entry.sequence) == entry.checksum else "checksum"
