"""Blocks of a segment: read back as they were written, in their place only, and not with one bit changed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.pool.disk.format import (
    BLOCK_BYTES,
    MAX_STREAM_BYTES,
    TOMBSTONES_PER_BLOCK,
    Entry,
    Tombstone,
    binding_of,
    footer,
    named_segment,
    padded,
    parse_block,
    parse_footer_end,
    parse_footer_index,
    parse_superblock,
    record_header,
    segment_name,
    segment_number,
    stored_stream,
    superblock,
    tombstone_block,
)

SEGMENT = segment_number(3, 9)
BINDING = binding_of(b"namespace", 5000, SEGMENT)

keys = st.binary(min_size=16, max_size=16)
entries = st.builds(
    Entry,
    key=keys,
    parent=st.one_of(st.just(b""), keys),
    stream=st.text(max_size=40).map(stored_stream),
    sequence=st.integers(0, 2**64 - 1),
    segment=st.just(SEGMENT),
    offset=st.integers(2, 10_000).map(lambda n: n * BLOCK_BYTES),
    num_bytes=st.integers(1, 1 << 30),
    checksum=keys,
)
ENTRY = Entry(b"k" * 16, b"p" * 16, "a stream", 77, SEGMENT, 5 * BLOCK_BYTES, 5000, b"c" * 16)


@given(entry=entries, commit=st.integers(0, 2**32 - 1))
def test_a_record_header_comes_back(entry: Entry, commit: int) -> None:
    header = record_header(entry, BINDING, commit)
    assert len(header) == BLOCK_BYTES
    parsed = parse_block(header, BINDING, SEGMENT, entry.begin)
    assert parsed is not None and parsed.entry == entry and parsed.commit == commit and not parsed.tombstones


@given(stones=st.lists(st.builds(Tombstone, keys, st.integers(0, 2**64 - 1)), max_size=TOMBSTONES_PER_BLOCK))
@settings(max_examples=30)
def test_tombstones_come_back(stones: list[Tombstone]) -> None:
    parsed = parse_block(tombstone_block(stones, BINDING, 4, 8192), BINDING, SEGMENT, 8192)
    assert parsed is not None and list(parsed.tombstones) == stones and parsed.entry is None


def test_as_many_tombstones_as_promised_fit() -> None:
    stones = [Tombstone(bytes([n]) * 16, 2**64 - 1) for n in range(TOMBSTONES_PER_BLOCK)]
    assert len(tombstone_block(stones, BINDING, 0, 4096)) == BLOCK_BYTES


@pytest.mark.parametrize("bit", range(0, BLOCK_BYTES * 8, 97))
def test_one_bit_anywhere_makes_it_no_header(bit: int) -> None:
    for block in (
        record_header(ENTRY, BINDING, 0),
        tombstone_block([Tombstone(b"k" * 16, 5)], BINDING, 0, ENTRY.begin),
    ):
        assert parse_block(block, BINDING, SEGMENT, ENTRY.begin) is not None
        assert parse_block(_flipped(block, bit), BINDING, SEGMENT, ENTRY.begin) is None
    assert parse_superblock(_flipped(superblock(b"namespace", 5000, SEGMENT), bit)) is None


def test_a_header_is_one_in_its_own_place_only() -> None:
    header = record_header(ENTRY, BINDING, 0)
    assert parse_block(header, BINDING, SEGMENT, ENTRY.begin + BLOCK_BYTES) is None
    others = (
        binding_of(b"namespacf", 5000, SEGMENT),
        binding_of(b"namespace", 5001, SEGMENT),
        binding_of(b"namespace", 5000, SEGMENT + 1),
    )
    assert all(parse_block(header, other, SEGMENT, ENTRY.begin) is None for other in others)


def test_a_superblock_comes_back() -> None:
    found = parse_superblock(superblock(b"namespace", 5000, SEGMENT))
    assert found is not None and (found.namespace, found.record_bytes, found.segment) == (b"namespace", 5000, SEGMENT)


@given(found=st.lists(entries, max_size=5), stones=st.lists(st.builds(Tombstone, keys, st.integers(0, 99)), max_size=4))
def test_a_footer_comes_back_and_no_bit_of_it_may_change(found: list[Entry], stones: list[Tombstone]) -> None:
    at = 7 * BLOCK_BYTES
    text = footer(found, stones, BINDING, at)
    place = at + len(text) - BLOCK_BYTES
    end = parse_footer_end(text[-BLOCK_BYTES:], BINDING, place)
    assert end is not None
    begin, length, checksum = end
    assert begin == at and padded(length) == len(text) - BLOCK_BYTES
    index = parse_footer_index(text[:length], checksum)
    assert index is not None and index.entries == found and index.tombstones == stones
    assert parse_footer_index(_flipped(text[:length], length * 4), checksum) is None
    assert parse_footer_end(_flipped(text[-BLOCK_BYTES:], 999), BINDING, place) is None
    assert parse_footer_end(text[-BLOCK_BYTES:], BINDING, place + BLOCK_BYTES) is None


def test_names_say_which_segment_it_is() -> None:
    assert named_segment(segment_name(SEGMENT)) == SEGMENT
    assert segment_number(4, 0) > segment_number(3, 2**32 - 1)
    for name in ("lock", "probe", "0" * 16, "g" * 16 + ".seg", "1.seg", "0" * 15 + "A.seg"):
        assert named_segment(name) is None


def test_a_stream_that_cannot_be_written_is_written_as_nothing() -> None:
    assert stored_stream("é" * (MAX_STREAM_BYTES // 2)) == "é" * (MAX_STREAM_BYTES // 2)
    assert stored_stream("é" * (MAX_STREAM_BYTES // 2) + "x") == ""
    assert stored_stream("\ud800") == ""
    longest = Entry(b"k" * 16, b"", "é" * (MAX_STREAM_BYTES // 2), 1, SEGMENT, 8192, 1, b"c" * 16)
    parsed = parse_block(record_header(longest, BINDING, 0), BINDING, SEGMENT, longest.begin)
    assert parsed is not None and parsed.entry == longest


def _flipped(block: bytes, bit: int) -> bytes:
    at = bit // 8 % len(block)
    return block[:at] + bytes([block[at] ^ 1 << bit % 8]) + block[at + 1 :]
