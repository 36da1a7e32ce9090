"""Turns batches of records, deletions and copies into commits. One caller at a time: whoever holds the write lock.

What is deleted or replaced is dead in memory at once; its tombstone goes to the disk with the next commit (never with
the commit that replaces it, which may be torn), and only then is its place punched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from samovar.pool.checksum import block_checksum
from samovar.pool.disk.files import Files
from samovar.pool.disk.format import (
    BLOCK_BYTES,
    KEY_BYTES,
    TOMBSTONES_PER_BLOCK,
    Entry,
    Tombstone,
    padded,
    stored_stream,
)
from samovar.pool.disk.index import Index
from samovar.pool.disk.record import Record, WriteOutcome
from samovar.pool.disk.segment import Segment
from samovar.pool.disk.settings import Settings
from samovar.pool.disk.stats import Counters
from samovar.pool.disk.writer import Draft, Writer

Numbered = tuple[int, Draft]


class Appender:
    def __init__(
        self, files: Files, index: Index, writer: Writer, counters: Counters, settings: Settings, next_sequence: int
    ) -> None:
        self._files = files
        self._index = index
        self._writer = writer
        self._counters = counters
        self._settings = settings
        self.next_sequence = next_sequence

    def write(self, records: Sequence[Record]) -> tuple[WriteOutcome, ...]:
        """As many of them as there is room for, in their order: one commit, or one per segment they reach into."""
        outcomes: list[WriteOutcome] = ["full"] * len(records)
        waiting = [(number, self._draft(records[number])) for number in self._admitted(records)]
        while waiting:
            outcome, count = self._commit_some(waiting)
            if outcome != "ok":
                for number, _ in waiting:
                    outcomes[number] = outcome
                break
            for number, _ in waiting[:count]:
                outcomes[number] = "ok"
            waiting = waiting[count:]
        self._count(outcomes, records)
        return tuple(outcomes)

    def flush(self) -> WriteOutcome:
        """Makes the deletions so far durable."""
        owed = self._index.take_owed()
        outcome = self._writer.write_tombstones(_tombstones(owed), self._settings.firm_bytes)
        if outcome == "ok":
            self._punch(owed)
        else:
            self._index.owe(owed)
            self._counters.failed(f"delete:{outcome}")
        return outcome

    def copy(self, payloads: Sequence[tuple[Entry, memoryview]]) -> WriteOutcome:
        """Writes verified payloads of live records once more, and makes the copies the current records."""
        limit = self._settings.hard_bytes
        waiting = [
            (entry, Draft(entry.key, entry.parent, entry.stream, entry.sequence, entry.checksum, payload))
            for entry, payload in payloads
        ]
        while waiting:
            room = self._writer.room_bytes(waiting[0][1].stride_bytes, limit)
            if not isinstance(room, int):
                return room
            count = _fitting([draft for _, draft in waiting], room)
            done = self._writer.commit((), [draft for _, draft in waiting[:count]], limit)
            if not isinstance(done, list):
                return done
            segment = self._active()
            originals = [entry for entry, _ in waiting[:count]]
            self._index.publish_copies(segment, list(zip(originals, done, strict=True)))
            self._counters.add(compacted_bytes=sum(entry.stride_bytes for entry in done))
            waiting = waiting[count:]
        return "ok"

    def keep_tombstones(self, segment: Segment) -> WriteOutcome:
        """Copies those that are still needed out of a segment that is about to go."""
        return self._writer.write_tombstones(self._index.tombstones_to_keep(segment), self._settings.hard_bytes)

    def _draft(self, record: Record) -> Draft:
        data = memoryview(record.data).cast("B")
        assert len(record.key) == KEY_BYTES and len(record.parent) in (0, KEY_BYTES)
        assert 0 < len(data) <= self._settings.record_bytes, "a payload is empty or larger than the log's records"
        sequence = self.next_sequence
        self.next_sequence += 1
        checksum = block_checksum(data, record.key, sequence)
        return Draft(record.key, record.parent, stored_stream(record.stream), sequence, checksum, data)

    def _admitted(self, records: Sequence[Record]) -> list[int]:
        """Positions of those that fit into the capacity, counting what they replace as free."""
        settings, index = self._settings, self._index
        replaced = index.strides([record.key for record in records])
        live = settings.live_limit_bytes - index.live_bytes
        physical = settings.soft_bytes - index.physical_bytes
        admitted: list[int] = []
        for number, record in enumerate(records):
            stride = stride_of(record)
            net = stride - replaced.get(record.key, 0)
            if net > live or stride > physical:
                continue
            live -= net
            physical -= stride
            replaced[record.key] = stride
            admitted.append(number)
        return admitted

    def _commit_some(self, waiting: Sequence[Numbered]) -> tuple[WriteOutcome, int]:
        """One commit of as many as fit into the active segment, with the tombstones owed."""
        if self._index.num_owed > TOMBSTONES_PER_BLOCK:
            self.flush()
        owed = self._index.take_owed()
        if len(owed) > TOMBSTONES_PER_BLOCK:  # The flush failed; so may this, and then they are owed again.
            self._index.owe(owed[TOMBSTONES_PER_BLOCK:])
            owed = owed[:TOMBSTONES_PER_BLOCK]
        ahead = BLOCK_BYTES if owed else 0
        limit = self._settings.firm_bytes
        room = self._writer.room_bytes(ahead + waiting[0][1].stride_bytes, limit)
        done: list[Entry] | WriteOutcome = room if not isinstance(room, int) else "io"
        if isinstance(room, int):
            count = _fitting([draft for _, draft in waiting], room - ahead)
            done = self._writer.commit(_tombstones(owed), [draft for _, draft in waiting[:count]], limit)
        if not isinstance(done, list):
            self._index.owe(owed)
            return done, 0
        self._index.publish(self._active(), done)
        self._punch(owed)
        return "ok", len(done)

    def _active(self) -> Segment:
        segment = self._writer.active
        assert segment is not None
        return segment

    def _punch(self, dead: Sequence[Entry]) -> None:
        """Gives their places back to the file system."""
        if not self._settings.punching:
            return
        ordered = sorted(dead, key=lambda entry: (entry.segment, entry.begin))
        for number, entries in groupby(ordered, key=lambda entry: entry.segment):
            segment = self._index.segment(number)
            if segment is not None:
                punch(self._files, segment, list(entries), self._counters)

    def _count(self, outcomes: Sequence[WriteOutcome], records: Sequence[Record]) -> None:
        good = [memoryview(r.data).nbytes for r, outcome in zip(records, outcomes, strict=True) if outcome == "ok"]
        self._counters.add(written_records=len(good), payload_bytes=sum(good))
        for outcome in outcomes:
            if outcome != "ok":
                self._counters.failed(f"write:{outcome}")


def punch(files: Files, segment: Segment, dead: Sequence[Entry], counters: Counters) -> None:
    """`dead`: records of the segment in the order of their offsets. Neighbours go in one call."""
    ranges: list[tuple[int, int]] = []
    for entry in dead:
        if ranges and ranges[-1][1] == entry.begin:
            ranges[-1] = (ranges[-1][0], entry.end)
        else:
            ranges.append((entry.begin, entry.end))
    try:
        for begin, end in ranges:
            files.punch(segment.fd, begin, end - begin)
        segment.allocated_bytes = files.state(segment.fd).allocated_bytes
    except OSError:
        counters.failed("punch:io")


def stride_of(record: Record) -> int:
    """What it will occupy."""
    return BLOCK_BYTES + padded(memoryview(record.data).nbytes)


def _tombstones(dead: Sequence[Entry]) -> list[Tombstone]:
    return [Tombstone(entry.key, entry.sequence) for entry in dead]


def _fitting(drafts: Sequence[Draft], room_bytes: int) -> int:
    """How many of the first ones."""
    for count, draft in enumerate(drafts):
        room_bytes -= draft.stride_bytes
        if room_bytes < 0:
            return count
    return len(drafts)
