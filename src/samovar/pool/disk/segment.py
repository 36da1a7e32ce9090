"""One segment file as the log holds it in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from samovar.pool.disk.format import Entry, Tombstone


@dataclass(slots=True, eq=False)
class Segment:
    """Changed only under the index's lock, but for what the writer appends to (`size_bytes`, `binding` never
    changes)."""

    number: int
    path: str
    binding: bytes
    fd: int
    """For reads (past the page cache where that works) and for punching."""
    size_bytes: int
    """Up to the end of the last commit; a footer comes behind it."""
    allocated_bytes: int
    """Measured, footer included; while a commit is being written, what it may come to."""
    sealed: bool = False
    """Nothing is appended any more."""
    entries: list[Entry] = field(default_factory=list)
    """Every record in the file, dead or alive."""
    tombstones: list[Tombstone] = field(default_factory=list)
    live_bytes: int = 0
    num_live: int = 0
    last_sequence: int = 0
    """Of the latest record that is not a copy: how old the content is."""
    num_pins: int = 0
    """Reads under way. The descriptor stays open until they end."""
    retired: bool = False
