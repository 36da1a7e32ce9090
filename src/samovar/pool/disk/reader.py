"""Reads records and verifies each payload where it lies. Of large ones the parts that have arrived are hashed while
others are read; small ones that lie side by side are read by one call and hashed afterwards.

No lock is held while the disk is asked. The segment is pinned, so its descriptor stays open; but a record may be
overwritten, deleted (its place punched to zeros) or moved by compaction meanwhile. So a payload that does not pass is
damaged only if its entry is still the current one; else it is looked up again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import errno
from itertools import groupby
import threading
from typing import TYPE_CHECKING, Literal

import numpy as np

from samovar.pool.checksum import binding, block_checksum
from samovar.pool.disk.files import MOST_BUFFERS, Files
from samovar.pool.disk.format import BLOCK_BYTES, Entry, padded
from samovar.pool.disk.index import Index, Pinned
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.stats import Counters

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ReadOutcome = Literal["ok", "missing", "checksum", "io"]
"""Anything but "ok" is a miss, and what is in the buffer must not be used. "checksum": the bytes are not those that
were written; "io": they could not be read. Either way the record is gone from then on."""

RUN_BYTES = 4 << 20
"""A run of small records ends here."""
_NOT_HASHED = frozenset((errno.EINVAL, errno.EAGAIN))
"""Of a buffer that does not lie right, or with all of the system's queues taken: it can still be read plainly."""
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

    def __init__(self, files: Files, index: Index, counters: Counters) -> None:
        self._files = files
        self._index = index
        self._counters = counters
        self._scratch = _Scratch()

    def read_one(self, key: bytes, buffer: WriteableBuffer) -> ReadOutcome:
        view = memoryview(buffer).cast("B")
        found = self._index.pin([key])[0]
        if found is None:
            return "missing"
        entry, segment = found
        assert len(view) >= entry.num_bytes, "the buffer is shorter than the record"
        try:
            outcome = self.fetch(entry, segment, view)
        finally:
            self._index.unpin((segment,))
        if outcome == "ok":
            self._counters.read(1, entry.num_bytes)
        elif not self._drop(entry, outcome):
            outcome = self._read_again(key, view)
        return outcome

    def read(self, keys: Sequence[bytes], buffers: Sequence[WriteableBuffer]) -> tuple[ReadOutcome, ...]:
        """Each buffer is at least as long as its record; more than the record is not written. On 4096-byte boundaries
        nothing is copied."""
        assert len(keys) == len(buffers)
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        outcomes: list[ReadOutcome] = ["missing"] * len(keys)
        again: list[int] = []
        num_bytes = 0
        pinned = self._index.pin(keys)
        try:
            for (position, entry, _, _), outcome in self._outcomes(_sorted(pinned, views)):
                if outcome == "ok":
                    num_bytes += entry.num_bytes
                elif not self._drop(entry, outcome):
                    again.append(position)
                outcomes[position] = outcome
        finally:
            self._index.unpin([found[1] for found in pinned if found is not None])
        self._counters.read(outcomes.count("ok"), num_bytes)
        for position in again:
            outcomes[position] = self._read_again(keys[position], views[position])
        return tuple(outcomes)

    def fetch(self, entry: Entry, segment: Segment, view: memoryview) -> ReadOutcome:
        """One record of a pinned segment; nothing is dropped."""
        if entry.num_bytes >= self._files.hashed_from_bytes:
            return self._hashed(segment, [(0, entry, segment, view)])[0]
        return self._plain(entry, segment, view)

    def _outcomes(self, wanted: Sequence[_Wanted]) -> Iterator[tuple[_Wanted, ReadOutcome]]:
        """`wanted`: in the order in which they lie on the disk."""
        least = self._files.hashed_from_bytes
        large = [item for item in wanted if item[1].num_bytes >= least]
        for _, group in groupby(large, key=lambda item: item[2].number):
            items = list(group)
            yield from zip(items, self._hashed(items[0][2], items), strict=True)
        small = [item for item in wanted if item[1].num_bytes < least]
        for run in _runs(small):
            arrived = self._arrived(run)
            for item in run:
                _, entry, segment, view = item
                payload = view[: entry.num_bytes]
                yield item, _verified(entry, payload) if arrived else self._plain(entry, segment, view)

    def _hashed(self, segment: Segment, items: Sequence[_Wanted]) -> list[ReadOutcome]:
        offsets = [entry.offset for _, entry, _, _ in items]
        payloads = [view[: entry.num_bytes] for _, entry, _, view in items]
        bindings = [binding(entry.key, entry.sequence) for _, entry, _, _ in items]
        try:
            answers = self._files.read_hashed(segment.fd, offsets, payloads, bindings)
        except OSError:
            return [self._plain(entry, segment, view) for _, entry, _, view in items]
        outcomes: list[ReadOutcome] = []
        for (_, entry, _, view), answer in zip(items, answers, strict=True):
            if isinstance(answer, bytes):
                outcomes.append("ok" if answer == entry.checksum else "checksum")
            else:
                outcomes.append(self._plain(entry, segment, view) if answer in _NOT_HASHED else "io")
        return outcomes

    def _plain(self, entry: Entry, segment: Segment, view: memoryview) -> ReadOutcome:
        payload = view[: entry.num_bytes]
        try:
            if entry.num_bytes % BLOCK_BYTES:
                arrived = self._into(segment, entry.offset, [(entry, payload)])
            else:
                arrived = self._files.read(segment.fd, [payload], entry.offset) == entry.num_bytes
        except OSError as error:
            if error.errno != errno.EINVAL:
                return "io"
            return self._bounced(entry, segment, payload)
        return _verified(entry, payload) if arrived else "io"

    def _bounced(self, entry: Entry, segment: Segment, payload: memoryview) -> ReadOutcome:
        """Where the buffer does not lie as a direct read wants it."""
        bounce = self._scratch.record(padded(entry.num_bytes))[: entry.num_bytes]
        try:
            if not self._into(segment, entry.offset, [(entry, bounce)]):
                return "io"
        except OSError:
            return "io"
        np.copyto(np.frombuffer(payload, np.uint8), np.frombuffer(bounce, np.uint8))
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
            if outcome == "ok":
                self._counters.read(1, found[0].num_bytes)
            if outcome == "ok" or self._drop(found[0], outcome):
                return outcome
        return "missing"

    def _drop(self, entry: Entry, outcome: ReadOutcome) -> bool:
        """False when it is not the current record of its key any more."""
        dropped = self._index.forget_entry(entry)
        if dropped:
            self._counters.failed(f"read:{outcome}")
        return dropped

    def _arrived(self, run: Sequence[_Wanted]) -> bool:
        """Reads the run by one call. False: its records have to be read one by one. Where one of them cannot be read,
        or its buffer lies wrong, the others are not to suffer for it."""
        parts = [(entry, view[: entry.num_bytes]) for _, entry, _, view in run]
        try:
            return self._into(run[0][2], run[0][1].offset, parts)
        except OSError:
            return False

    def _into(self, segment: Segment, offset: int, parts: Sequence[tuple[Entry, memoryview]]) -> bool:
        """One call for neighbouring records. Whole pages where reads are direct: what rounds a payload up to one, and
        the headers between, land in scratch pages. False when the file ends before. Raises OSError."""
        buffers: list[memoryview] = []
        ends: list[tuple[memoryview, memoryview]] = []
        wanted = -BLOCK_BYTES
        for entry, payload in parts:
            if buffers:
                buffers.append(self._scratch.page(0))
            whole = entry.num_bytes // BLOCK_BYTES * BLOCK_BYTES
            if whole:
                buffers.append(payload[:whole])
            if whole < entry.num_bytes:
                page = self._scratch.page(len(ends) + 1)
                buffers.append(page)
                ends.append((payload[whole:], page))
            wanted += entry.stride_bytes
        if self._files.read(segment.fd, buffers, offset) != wanted:
            return False
        for end, page in ends:
            end[:] = page[: len(end)]
        return True


def _sorted(pinned: Sequence[Pinned | None], views: Sequence[memoryview]) -> list[_Wanted]:
    """What was found, as it lies on the disk."""
    wanted = [(n, *found, views[n]) for n, found in enumerate(pinned) if found is not None]
    wanted.sort(key=lambda item: (item[2].number, item[1].offset))
    for _, entry, _, view in wanted:
        assert len(view) >= entry.num_bytes, "the buffer is shorter than the record"
    return wanted


def _runs(wanted: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
    """Neighbours, together."""
    run: list[_Wanted] = []
    for item in wanted:
        _, entry, segment, _ = item
        if run and not (
            run[-1][2] is segment
            and run[-1][1].end == entry.begin
            and entry.end - run[0][1].offset <= RUN_BYTES
            and len(run) < MOST_BUFFERS // _BUFFERS_PER_RECORD
        ):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _verified(entry: Entry, payload: memoryview) -> ReadOutcome:
    return "ok" if block_checksum(payload, entry.key, entry.sequence) == entry.checksum else "checksum"
