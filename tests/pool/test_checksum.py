"""A checksum says what the bytes are and whose."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import xxhash

from samovar.pool.checksum import block_checksum, copy_with_checksum, plain_checksum, plain_copy

try:
    from samovar.pool import _native
except ImportError:
    _native = None  # type: ignore[assignment]

KEY = b"k" * 16
needs_native = pytest.mark.skipif(_native is None, reason="installed without a compiler")


def test_it_is_xxh3_128_of_the_bytes_and_what_they_are_bound_to() -> None:
    text = b"payload" + KEY + (7).to_bytes(8, "little") + (16).to_bytes(2, "little")
    assert block_checksum(b"payload", KEY, 7) == xxhash.xxh3_128_digest(text)
    assert len(block_checksum(b"", KEY, 0)) == 16


@given(data=st.binary(max_size=300), key=st.binary(min_size=16, max_size=16), generation=st.integers(0, 2**64 - 2))
def test_anything_else_gives_another(data: bytes, key: bytes, generation: int) -> None:
    found = block_checksum(data, key, generation)
    assert found == block_checksum(bytearray(data), key, generation)
    assert found != block_checksum(data + b"\0", key, generation)
    assert found != block_checksum(data, key, generation + 1)
    assert found != block_checksum(data, bytes([key[0] ^ 1]) + key[1:], generation)
    for at in range(0, len(data), 7):
        assert found != block_checksum(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :], key, generation)


def test_a_key_cannot_pass_for_a_part_of_the_bytes() -> None:
    assert block_checksum(b"ab", b"c", 1) != block_checksum(b"a", b"bc", 1)


def test_arrays_are_bytes_too() -> None:
    array = np.arange(50_000, dtype=np.uint8).reshape(10, 5000)
    assert block_checksum(array, KEY, 3) == block_checksum(array.tobytes(), KEY, 3)


LENGTHS = (2048, 2049, 2085, 3071, 3072, 4096, 4097, 65_535, 65_536, 368_640, 1_000_003)


@needs_native
@pytest.mark.parametrize("level", range(len(_native.instruction_sets())) if _native else ())
@pytest.mark.parametrize("length", LENGTHS)
def test_the_native_pass_gives_the_same(level: int, length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8)
    for bound in (b"x", KEY * 2, KEY * 16):
        expected = xxhash.xxh3_128_digest(data.tobytes() + bound)
        assert _native.checksum(data.data, bound, level) == expected
        for cached in (True, False):
            for shift in (0, 1):
                memory = np.zeros(length + 64, dtype=np.uint8)
                target = memory[shift : shift + length]
                assert _native.copy(target.data, data.data, bound, cached, level) == expected
                assert np.array_equal(target, data) and not memory[shift + length :].any()


@needs_native
@given(length=st.integers(2048, 20_000), shift=st.integers(0, 9), generation=st.integers(0, 2**64 - 1))
def test_block_checksums_do_not_depend_on_the_extension(length: int, shift: int, generation: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length + shift, dtype=np.uint8)[shift:]
    expected = plain_checksum(data.data, KEY, generation)
    assert block_checksum(data.data, KEY, generation) == expected
    target = np.zeros_like(data)
    assert copy_with_checksum(target, data, data, KEY, generation) == expected and np.array_equal(target, data)


def test_without_the_extension_a_copy_is_the_same() -> None:
    data = np.arange(700_001, dtype=np.uint32).view(np.uint8)
    target = np.zeros_like(data)
    assert plain_copy(target, data, target, KEY, 5) == plain_checksum(data.data, KEY, 5)
    assert np.array_equal(target, data)


@needs_native
def test_the_native_pass_refuses_what_does_not_go_together() -> None:
    data = np.zeros(4096, dtype=np.uint8)
    with pytest.raises(ValueError, match="too short"):
        _native.checksum(data[:2047].data, KEY)
    with pytest.raises(ValueError, match="as large"):
        _native.copy(data[:3000].data, data.data, KEY, True)
    with pytest.raises(ValueError, match="level"):
        _native.checksum(data.data, KEY, 99)
    with pytest.raises(ValueError, match="binding"):
        _native.checksum(data.data, b"")
    with pytest.raises((BufferError, ValueError)):
        _native.copy(data.tobytes(), data.data, KEY, True)


@needs_native
def test_what_is_hashed_is_what_was_copied_whoever_writes_the_source_meanwhile() -> None:
    source = np.zeros(1 << 20, dtype=np.uint8)
    stop = threading.Event()

    def scribble() -> None:
        value = 0
        while not stop.is_set():
            value = (value + 1) % 251
            source[:] = value

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        target, mixed = np.zeros_like(source), 0
        for turn in range(150):
            digest = copy_with_checksum(target, source, target, KEY, turn, cached=bool(turn % 2))
            assert digest == plain_checksum(target.data, KEY, turn)
            mixed += len(np.unique(target)) > 1
    finally:
        stop.set()
        thread.join()
    assert mixed, "never disturbed: the test shows nothing"
