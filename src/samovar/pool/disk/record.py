"""What goes into the log and what is told about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WriteOutcome = Literal["ok", "full", "io", "gone"]
"""Only "ok" is acknowledged: it survives a crash. "full": neither capacity nor the disk has room; "io": the disk
failed; "gone": the folder was removed or replaced, and with it every record. Said once: the next write finds an empty
log in a folder made again, or fails with "io"."""


class Record(Protocol):
    """A block to be written."""

    @property
    def key(self) -> bytes:
        """16 bytes."""
        ...

    @property
    def parent(self) -> bytes:
        """The key before it in its chain, b"" for a first block."""
        ...

    @property
    def stream(self) -> str:
        """Whose it is; at most 256 bytes of UTF-8, a longer one is recorded as ""."""
        ...

    @property
    def data(self) -> ReadableBuffer:
        """C-contiguous, not empty, at most the log's `record_bytes`; unchanged until the write returns."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """A record, for who has no class of their own."""

    key: bytes
    parent: bytes
    stream: str
    data: ReadableBuffer


@dataclass(frozen=True, slots=True)
class RecordInfo:
    """A record that the log holds."""

    key: bytes
    parent: bytes
    stream: str
    sequence: int
    num_bytes: int
