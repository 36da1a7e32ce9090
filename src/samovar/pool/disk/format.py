"""How a segment lies on the disk.

    superblock     4096 bytes   what the segment is
    record         4096 bytes of header, then the payload, filled up with zeros to a multiple of 4096
    tombstones     4096 bytes   keys whose earlier records are dead
    ...            records and tombstones in the order of their commits
    footer         the index of the segment, filled up, and 4096 bytes that say where it is; only once it is sealed

Every block of 4096 bytes but payload and index begins with a magic and its own checksum, and carries what binds it to
its place: namespace, segment, offset. So a header is known for one wherever a scan meets it, and bytes that only look
like one (a payload may contain anything) are not taken for one. Integers are little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import struct

import msgspec
import xxhash

BLOCK_BYTES = 4096
FORMAT_VERSION = 1
KEY_BYTES = 16
MAX_STREAM_BYTES = 256
MAX_NAMESPACE_BYTES = 64
TOMBSTONES_PER_BLOCK = 160
SUFFIX = ".seg"

_SUPERBLOCK = b"SAMOVSEG"
_RECORD = b"SAMOVREC"
_TOMBSTONES = b"SAMOVDEL"
_FOOTER = b"SAMOVEND"

_HEAD = struct.Struct("<8s16s")
_PLACE = struct.Struct("<16sQI")
_SUPER = struct.Struct("<IQQQB")
_FIELDS = struct.Struct("<16s16s?HQQ16s")
_COUNT = struct.Struct("<H")
_TOMBSTONE = struct.Struct("<16sQ")
_END = struct.Struct("<QQ16s")


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record, and where it lies."""

    key: bytes
    parent: bytes
    stream: str
    sequence: int
    """Of its write: unique, and larger than those of earlier writes. A copy made by compaction keeps it."""
    segment: int
    offset: int
    """Of the payload; the header is the block before it."""
    num_bytes: int
    checksum: bytes

    @property
    def begin(self) -> int:
        return self.offset - BLOCK_BYTES

    @property
    def end(self) -> int:
        return self.offset + padded(self.num_bytes)

    @property
    def stride_bytes(self) -> int:
        """What it occupies, header and filling included."""
        return BLOCK_BYTES + padded(self.num_bytes)


class Tombstone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records of the key up to this sequence are dead."""

    key: bytes
    sequence: int


class Footer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything that was committed to the segment, dead or alive, in that order."""

    entries: list[Entry]
    tombstones: list[Tombstone]


@dataclass(frozen=True, slots=True)
class Superblock:
    version: int
    segment: int
    record_bytes: int
    namespace: bytes


@dataclass(frozen=True, slots=True)
class Parsed:
    """A block of a segment that is a record's header (one entry) or holds tombstones."""

    commit: int
    """Counts the commits of the segment."""
    entry: Entry | None
    tombstones: tuple[Tombstone, ...]


def padded(num_bytes: int) -> int:
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


def segment_number(epoch: int, count: int) -> int:
    """`epoch` counts the openings of the folder, `count` the segments made since: later segments have larger
    numbers."""
    return epoch << 32 | count


def segment_name(segment: int) -> str:
    return f"{segment:016x}{SUFFIX}"


def named_segment(name: str) -> int | None:
    """The segment that a file of this name holds; None for a name that the log does not give."""
    stem = name.removesuffix(SUFFIX)
    if len(stem) != 16 or not name.endswith(SUFFIX) or set(stem) - set("0123456789abcdef"):
        return None
    return int(stem, 16)


def binding_of(namespace: bytes, record_bytes: int, segment: int) -> bytes:
    """16 bytes that every block of the segment carries. They follow from the folder and the file's name, so that a
    damaged superblock costs nothing."""
    text = FORMAT_VERSION.to_bytes(4, "little") + record_bytes.to_bytes(8, "little") + segment.to_bytes(8, "little")
    return xxhash.xxh3_128_digest(text + namespace)


def superblock(namespace: bytes, record_bytes: int, segment: int) -> bytes:
    fields = _SUPER.pack(FORMAT_VERSION, segment, segment >> 32, record_bytes, len(namespace))
    return _closed(_SUPERBLOCK, fields + namespace)


def parse_superblock(block: bytes) -> Superblock | None:
    """None for one that is damaged."""
    body = _opened(_SUPERBLOCK, block)
    if body is None:
        return None
    version, segment, _epoch, record_bytes, length = _SUPER.unpack_from(body)
    return Superblock(version, segment, record_bytes, body[_SUPER.size : _SUPER.size + length])


def record_header(entry: Entry, binding: bytes, commit: int) -> bytes:
    stream = entry.stream.encode()
    fields = _FIELDS.pack(
        entry.key, entry.parent, bool(entry.parent), len(stream), entry.sequence, entry.num_bytes, entry.checksum
    )
    return _closed(_RECORD, _PLACE.pack(binding, entry.begin, commit) + fields + stream)


def tombstone_block(tombstones: Sequence[Tombstone], binding: bytes, commit: int, offset: int) -> bytes:
    assert len(tombstones) <= TOMBSTONES_PER_BLOCK
    packed = b"".join(_TOMBSTONE.pack(stone.key, stone.sequence) for stone in tombstones)
    return _closed(_TOMBSTONES, _PLACE.pack(binding, offset, commit) + _COUNT.pack(len(tombstones)) + packed)


def parse_block(block: bytes, binding: bytes, segment: int, offset: int) -> Parsed | None:
    """None for anything that is not an intact header made for this place."""
    magic = block[:8]
    if magic != _RECORD and magic != _TOMBSTONES:
        return None
    body = _opened(magic, block)
    if body is None:
        return None
    bound, place, commit = _PLACE.unpack_from(body)
    if bound != binding or place != offset:
        return None
    if magic == _TOMBSTONES:
        return Parsed(commit, None, _unpack_tombstones(body))
    key, parent, has_parent, length, sequence, num_bytes, checksum = _FIELDS.unpack_from(body, _PLACE.size)
    at = _PLACE.size + _FIELDS.size
    stream = body[at : at + length].decode()
    entry = Entry(
        key, parent if has_parent else b"", stream, sequence, segment, offset + BLOCK_BYTES, num_bytes, checksum
    )
    return Parsed(commit, entry, ())


def footer(entries: list[Entry], tombstones: list[Tombstone], binding: bytes, offset: int) -> bytes:
    """What seals a segment whose last commit ends at `offset`."""
    index = msgspec.msgpack.encode(Footer(entries, tombstones))
    end = _END.pack(offset, len(index), xxhash.xxh3_128_digest(index))
    place = offset + padded(len(index))
    return index.ljust(padded(len(index)), b"\0") + _closed(_FOOTER, _PLACE.pack(binding, place, 0) + end)


def parse_footer_end(block: bytes, binding: bytes, offset: int) -> tuple[int, int, bytes] | None:
    """Of the last block of a segment: offset, length and checksum of its index. None when it is no footer's."""
    body = _opened(_FOOTER, block)
    if body is None:
        return None
    bound, place, _ = _PLACE.unpack_from(body)
    begin, length, checksum = _END.unpack_from(body, _PLACE.size)
    if bound != binding or place != offset or begin + padded(length) != offset:
        return None
    return begin, length, checksum


def parse_footer_index(index: bytes, checksum: bytes) -> Footer | None:
    if xxhash.xxh3_128_digest(index) != checksum:
        return None
    return msgspec.msgpack.decode(index, type=Footer)


def stored_stream(stream: str) -> str:
    """As it is written. A name that is too long, or no text, is written as "": nothing is known of the stream then."""
    try:
        fits = len(stream.encode()) <= MAX_STREAM_BYTES
    except UnicodeEncodeError:
        return ""
    return stream if fits else ""


def _closed(magic: bytes, body: bytes) -> bytes:
    filled = body.ljust(BLOCK_BYTES - _HEAD.size, b"\0")
    assert len(filled) == BLOCK_BYTES - _HEAD.size
    return _HEAD.pack(magic, xxhash.xxh3_128_digest(magic + filled)) + filled


def _opened(magic: bytes, block: bytes) -> bytes | None:
    if len(block) != BLOCK_BYTES:
        return None
    found, checksum = _HEAD.unpack_from(block)
    body = block[_HEAD.size :]
    if found != magic or xxhash.xxh3_128_digest(magic + body) != checksum:
        return None
    return body


def _unpack_tombstones(body: bytes) -> tuple[Tombstone, ...]:
    (count,) = _COUNT.unpack_from(body, _PLACE.size)
    at = _PLACE.size + _COUNT.size
    return tuple(Tombstone(*_TOMBSTONE.unpack_from(body, at + n * _TOMBSTONE.size)) for n in range(count))
