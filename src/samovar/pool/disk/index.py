"""What the log knows in memory: where every record lies, what is dead, which tombstones are still owed to the disk.

Invariants:
- every entry of `_entries` is one of its segment's `entries`, the very object; all other entries of a segment are dead;
- `_stale[key]` counts the key's dead records that are still in some file: as long as there are any, a tombstone for
  them must exist on the disk or be owed (a copy left behind by compaction alone is covered by its twin);
- the lock is held for dictionary work only, never while a file is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
import threading

from samovar.pool.disk.files import Files
from samovar.pool.disk.format import Entry, Tombstone
from samovar.pool.disk.segment import Segment

Pinned = tuple[Entry, Segment]


class Index:
    """Thread-safe. A segment's descriptor is owned here from `add` on."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._entries: dict[bytes, Entry] = {}
        self._segments: dict[int, Segment] = {}
        self._leaving: set[Segment] = set()
        self._stale: dict[bytes, int] = {}
        self._owed: list[Entry] = []

    # Reading

    def pin(self, keys: Sequence[bytes]) -> list[Pinned | None]:
        """Where each key's record is, in a segment that cannot be closed before it is unpinned; None for no record."""
        with self._lock:
            found: list[Pinned | None] = []
            for key in keys:
                entry = self._entries.get(key)
                if entry is None:
                    found.append(None)
                    continue
                segment = self._segments[entry.segment]
                segment.num_pins += 1
                found.append((entry, segment))
            return found

    def unpin(self, segments: Iterable[Segment]) -> None:
        closing: list[Segment] = []
        with self._lock:
            for segment in segments:
                segment.num_pins -= 1
                if segment.retired and not segment.num_pins:
                    closing.append(segment)
                    self._leaving.discard(segment)
        self._close(closing)

    def is_current(self, entry: Entry) -> bool:
        with self._lock:
            return self._entries.get(entry.key) is entry

    def strides(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """What the records of these keys occupy; nothing for keys without one."""
        with self._lock:
            return {key: entry.stride_bytes for key in keys if (entry := self._entries.get(key)) is not None}

    # Changing what is alive

    def publish(self, segment: Segment, entries: Sequence[Entry]) -> None:
        """They are on the disk now, and replace older records of their keys."""
        with self._lock:
            for entry in entries:
                segment.entries.append(entry)
                self._enliven(segment, entry)
                segment.last_sequence = max(segment.last_sequence, entry.sequence)

    def publish_copies(self, segment: Segment, copies: Sequence[tuple[Entry, Entry]]) -> None:
        """(original, copy) pairs. A copy whose original was replaced or deleted meanwhile is dead at once; the
        tombstone of the original covers it."""
        with self._lock:
            for original, copy in copies:
                segment.entries.append(copy)
                if self._entries.get(original.key) is original:
                    self._bury(original)
                    self._entries[copy.key] = copy
                    segment.live_bytes += copy.stride_bytes
                    segment.num_live += 1
                else:
                    self._stale[copy.key] = self._stale.get(copy.key, 0) + 1
            segment.last_sequence = max([segment.last_sequence, *(copy.sequence for _, copy in copies)])

    def publish_dead(self, segment: Segment, entries: Sequence[Entry]) -> None:
        """They may be on the disk though their commit failed: tombstones are owed."""
        with self._lock:
            for entry in entries:
                segment.entries.append(entry)
                self._stale[entry.key] = self._stale.get(entry.key, 0) + 1
                self._owed.append(entry)

    def forget(self, keys: Iterable[bytes]) -> int:
        """Deletes what there is of these keys; returns how many records."""
        with self._lock:
            found = [entry for key in dict.fromkeys(keys) if (entry := self._entries.pop(key, None)) is not None]
            for entry in found:
                self._bury(entry)
                self._owed.append(entry)
            return len(found)

    def forget_entry(self, entry: Entry) -> bool:
        """Deletes this record, unless another took its place."""
        with self._lock:
            if self._entries.get(entry.key) is not entry:
                return False
            del self._entries[entry.key]
            self._bury(entry)
            self._owed.append(entry)
            return True

    # Tombstones

    def take_owed(self) -> list[Entry]:
        """The dead records whose tombstones the next commit is to hold. They come back by `owe` if it fails."""
        with self._lock:
            owed = [entry for entry in self._owed if entry.key in self._stale]
            self._owed = []
            return owed

    def owe(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            self._owed[:0] = entries

    def tombstones_to_keep(self, segment: Segment) -> list[Tombstone]:
        """Those in the segment that still guard against a dead record in another one."""
        with self._lock:
            own = Counter(entry.key for entry in segment.entries if self._entries.get(entry.key) is not entry)
            kept = [stone for stone in segment.tombstones if self._stale.get(stone.key, 0) > own[stone.key]]
            return list(dict.fromkeys(kept))

    # Segments

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.number] = segment

    def restore(self, segment: Segment, killed: dict[bytes, int]) -> None:
        """Adds one found on the disk, after all earlier ones. `killed`: the sequence up to which each key's records are
        dead."""
        with self._lock:
            self._segments[segment.number] = segment
            for entry in segment.entries:
                segment.last_sequence = max(segment.last_sequence, entry.sequence)
                current = self._entries.get(entry.key)
                if entry.sequence <= killed.get(entry.key, -1):
                    self._stale[entry.key] = self._stale.get(entry.key, 0) + 1
                elif current is None or entry.sequence >= current.sequence:
                    self._enliven(segment, entry)
                else:
                    self._stale[entry.key] = self._stale.get(entry.key, 0) + 1
                    self._owed.append(entry)

    def retire(self, segment: Segment) -> None:
        """Its file is gone, and nothing in it is alive; the descriptor goes with the last read."""
        with self._lock:
            assert not segment.num_live and not segment.retired
            segment.retired = True
            del self._segments[segment.number]
            for entry in segment.entries:
                left = self._stale[entry.key] - 1
                if left:
                    self._stale[entry.key] = left
                else:
                    del self._stale[entry.key]
            closing = [] if segment.num_pins else [segment]
            if segment.num_pins:
                self._leaving.add(segment)
        self._close(closing)

    def close(self) -> None:
        """Forgets everything; descriptors go with the last reads."""
        with self._lock:
            segments = list(self._segments.values())
            for segment in segments:
                segment.retired = True
            self._leaving.update(segment for segment in segments if segment.num_pins)
            self._segments, self._entries, self._stale, self._owed = {}, {}, {}, []
        self._close([segment for segment in segments if not segment.num_pins])

    def segment(self, number: int) -> Segment | None:
        with self._lock:
            return self._segments.get(number)

    def segments(self) -> list[Segment]:
        """In the order they were made."""
        with self._lock:
            return sorted(self._segments.values(), key=lambda segment: segment.number)

    def live(self, segment: Segment) -> list[Entry]:
        with self._lock:
            return [entry for entry in segment.entries if self._entries.get(entry.key) is entry]

    def dead(self, segment: Segment) -> list[Entry]:
        with self._lock:
            return [entry for entry in segment.entries if self._entries.get(entry.key) is not entry]

    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    # Sums

    @property
    def physical_bytes(self) -> int:
        """All files, also removed ones that a read still holds open."""
        with self._lock:
            files = [*self._segments.values(), *self._leaving]
            return sum(segment.allocated_bytes for segment in files)

    @property
    def live_bytes(self) -> int:
        with self._lock:
            return sum(segment.live_bytes for segment in self._segments.values())

    @property
    def num_owed(self) -> int:
        with self._lock:
            return len(self._owed)

    def __len__(self) -> int:
        return len(self._entries)

    def check(self) -> None:
        """Recomputes every count; raises AssertionError. Nothing may be changed meanwhile."""
        with self._lock:
            stale: Counter[bytes] = Counter()
            for number, segment in self._segments.items():
                assert segment.number == number and not segment.retired
                alive = [entry for entry in segment.entries if self._entries.get(entry.key) is entry]
                assert segment.num_live == len(alive), f"segment {number:x} counts its records wrong"
                assert segment.live_bytes == sum(entry.stride_bytes for entry in alive)
                assert all(entry.segment == number for entry in segment.entries)
                stale.update(entry.key for entry in segment.entries if self._entries.get(entry.key) is not entry)
            assert sum(segment.num_live for segment in self._segments.values()) == len(self._entries)
            assert self._stale == dict(stale), "dead records are counted wrong"
            self._check_guards()

    def _check_guards(self) -> None:
        """Every dead record that a restart could take for a live one has a tombstone, on the disk or owed."""
        guarded: dict[bytes, int] = {}
        stones = [stone for segment in self._segments.values() for stone in segment.tombstones]
        for stone in [*stones, *(Tombstone(entry.key, entry.sequence) for entry in self._owed)]:
            guarded[stone.key] = max(guarded.get(stone.key, -1), stone.sequence)
        for segment in self._segments.values():
            for entry in segment.entries:
                current = self._entries.get(entry.key)
                twin = current is not None and current.sequence == entry.sequence
                assert twin or entry.sequence <= guarded.get(entry.key, -1), "a dead record could come back"

    def _enliven(self, segment: Segment, entry: Entry) -> None:
        old = self._entries.get(entry.key)
        if old is not None:
            self._bury(old)
            if old.sequence != entry.sequence:
                self._owed.append(old)
        self._entries[entry.key] = entry
        segment.live_bytes += entry.stride_bytes
        segment.num_live += 1

    def _bury(self, entry: Entry) -> None:
        segment = self._segments[entry.segment]
        segment.live_bytes -= entry.stride_bytes
        segment.num_live -= 1
        self._stale[entry.key] = self._stale.get(entry.key, 0) + 1

    def _close(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            try:
                self._files.close(segment.fd)
            except OSError:  # The descriptor is gone all the same.
                continue
