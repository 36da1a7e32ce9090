"""A checksum says what the bytes are and whose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import xxhash

from samovar.pool.checksum import block_checksum

KEY = b"k" * 16


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
