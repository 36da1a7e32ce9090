"""Gets dead bytes back: removes segments in which nothing is alive, and empties others by copying what is.

Where the file system punches holes, dead records cost nothing and a segment is only copied when little is left of it.
Where it does not, the victim is the segment with the best ratio of benefit to cost, as in the log-structured file
system of Rosenblum and Ousterhout (1991): free bytes times age, by bytes read and written. What was not touched for
long is likely to stay, so its dead bytes will not become more by waiting.

One caller at a time: whoever holds the write lock.
"""

from __future__ import annotations

from typing import Literal

from samovar.pool.disk.appender import Appender
from samovar.pool.disk.format import BLOCK_BYTES, Entry, padded
from samovar.pool.disk.index import Index
from samovar.pool.disk.memory import aligned_buffer
from samovar.pool.disk.reader import Reader
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.settings import ENDS_BYTES, INDEX_BYTES, Settings
from samovar.pool.disk.stats import Counters
from samovar.pool.disk.writer import Writer

Urgency = Literal["tidy", "asked", "needed"]
"""Which segments are worth copying. "tidy", in the background: nearly empty ones, and the best ones under pressure.
"asked": all with a tenth or more to give. "needed": whatever gives anything, since a write has no room."""

COPY_BYTES = 4 << 20
"""At most so much is copied at a time while writers wait."""
NEARLY_EMPTY = 10
"""A segment with less than this fraction (1/10) of a full one alive."""
FEW_NEARLY_EMPTY = 4
"""So many of them are left alone: copying a half-begun segment after every restart would be of no use."""
INLINE = 32
"""A write waits for copies of so many times its own size, or of two segments, before it is told that all is full."""


class Compactor:
    def __init__(
        self, index: Index, reader: Reader, writer: Writer, appender: Appender, counters: Counters, settings: Settings
    ) -> None:
        self._index = index
        self._reader = reader
        self._writer = writer
        self._appender = appender
        self._counters = counters
        self._settings = settings
        self._memory: memoryview | None = None

    def make_room(self, num_bytes: int) -> None:
        """For records that are about to be written, as far as it is possible at a bearable cost."""
        if self.has_room(num_bytes):
            return
        if self._index.num_owed:
            self._appender.flush()
        self.remove_empty()
        budget = max(INLINE * num_bytes, 2 * self._settings.segment_bytes)
        while budget > 0 and not self.has_room(num_bytes):
            copied = self.step("needed", budget)
            if copied is None:
                return
            budget -= max(copied, BLOCK_BYTES)

    def remove_empty(self) -> None:
        """Segments in which nothing is alive."""
        for segment in self._index.segments():
            if segment.sealed and not segment.num_live:
                self._remove(segment)

    def step(self, urgency: Urgency, budget_bytes: int) -> int | None:
        """Copies at most so many bytes out of the best victim; returns how many. None: no victim, or it failed."""
        victim = self._victim(urgency)
        return None if victim is None else self._empty(victim, budget_bytes)

    def has_room(self, num_bytes: int) -> bool:
        return self._index.physical_bytes + num_bytes <= self._settings.soft_bytes

    def _victim(self, urgency: Urgency) -> Segment | None:
        sealed = [segment for segment in self._index.segments() if segment.sealed]
        sparse = [s for s in sealed if s.live_bytes * NEARLY_EMPTY < self._settings.segment_bytes]
        if len(sparse) > FEW_NEARLY_EMPTY:
            return min(sparse, key=lambda segment: segment.live_bytes)
        if urgency == "tidy" and self._index.physical_bytes <= self._settings.pressure_bytes:
            return None
        worth = [segment for segment in sealed if self._is_worth(segment, urgency)]
        return max(worth, key=self._benefit, default=None)

    def _is_worth(self, segment: Segment, urgency: Urgency) -> bool:
        if urgency == "needed" and segment.live_bytes * 2 < self._settings.segment_bytes:
            return True
        gain = _reclaimable(segment)
        return gain > ENDS_BYTES + BLOCK_BYTES and (urgency == "needed" or gain * 10 >= segment.allocated_bytes)

    def _benefit(self, segment: Segment) -> float:
        age = max(1, self._appender.next_sequence - segment.last_sequence)
        gain = max(_reclaimable(segment), BLOCK_BYTES)
        return gain * age / (2 * segment.live_bytes + gain)

    def _empty(self, victim: Segment, budget_bytes: int) -> int | None:
        """Copies live records out of it, and removes it when none is left."""
        copied = 0
        for part in self._parts(self._index.live(victim), budget_bytes):
            payloads = self._payloads(victim, part)
            outcome = self._appender.copy(payloads)
            if outcome != "ok":
                self._counters.failed(f"compact:{outcome}")
                return None
            copied += sum(entry.stride_bytes for entry, _ in payloads)
        if victim.num_live == 0 and not self._remove(victim):
            return None
        return copied

    def _parts(self, live: list[Entry], budget_bytes: int) -> list[list[Entry]]:
        """Pieces that go through memory at once; at least one record, so that there is progress."""
        parts: list[list[Entry]] = []
        room = 0
        for entry in live:
            if parts and budget_bytes < entry.stride_bytes:
                break
            budget_bytes -= entry.stride_bytes
            if not parts or room < entry.stride_bytes:
                parts.append([])
                room = COPY_BYTES
            parts[-1].append(entry)
            room -= entry.stride_bytes
        return parts

    def _payloads(self, victim: Segment, entries: list[Entry]) -> list[tuple[Entry, memoryview]]:
        """Those that are as they were written; the others are dropped."""
        if self._memory is None:
            self._memory = aligned_buffer(max(COPY_BYTES, self._settings.stride_bytes))
        good: list[tuple[Entry, memoryview]] = []
        position = 0
        for entry in entries:
            payload = self._memory[position : position + entry.num_bytes]
            position += padded(entry.num_bytes)
            outcome = self._reader.fetch(entry, victim, payload)
            if outcome == "ok":
                good.append((entry, payload))
            elif self._index.forget_entry(entry):
                self._counters.failed(f"compact:{outcome}")
        return good

    def _remove(self, segment: Segment) -> bool:
        return self._appender.keep_tombstones(segment) == "ok" and self._writer.remove(segment)


def _reclaimable(segment: Segment) -> int:
    return segment.allocated_bytes - segment.live_bytes - segment.num_live * INDEX_BYTES
