"""Block keys: known values, and what makes two prefixes the same or not."""

from __future__ import annotations

from hashlib import sha256
import struct

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.base.keys import (
    KEY_BYTES,
    TOKEN_BYTES,
    domain_salt,
    extend_keys,
    join_keys,
    pack_tokens,
    root_key,
    split_keys,
    unpack_tokens,
)

TOKEN_LISTS = st.lists(st.integers(0, 2**31 - 1), max_size=40)
FIELDS = st.tuples(st.binary(max_size=6), st.binary(max_size=6), st.binary(max_size=6))


@given(fields=FIELDS)
def test_the_root_is_a_hash_of_fields_with_their_lengths(fields: tuple[bytes, bytes, bytes]) -> None:
    framed = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    assert root_key(*fields) == sha256(framed).digest()[:16]


def test_keys_do_not_change_between_versions() -> None:
    """Stores on disk and other machines know blocks by these bytes."""
    root = root_key(b"model", b"salt", b"extra")
    assert root.hex() == "7a892cc3efe76379d657f9d348fae41c"
    assert [key.hex() for key in extend_keys(root, pack_tokens([1, 2, 3, 2**31 - 1]), 2)] == [
        "9aae7dc4d10202ffa959c4b5cc593140",
        "c77613da8fb273722e3a6d130b3c43c2",
    ]


def test_token_ids_are_little_endian_int32() -> None:
    assert pack_tokens([1, 256, 2**31 - 1]) == bytes.fromhex("0100000000010000ffffff7f")
    with pytest.raises(OverflowError):
        pack_tokens([2**31])


@given(tokens=TOKEN_LISTS)
def test_tokens_come_back_from_their_bytes(tokens: list[int]) -> None:
    packed = pack_tokens(tokens)
    assert len(packed) == len(tokens) * TOKEN_BYTES
    assert unpack_tokens(packed) == unpack_tokens(memoryview(packed)) == tokens


@given(tokens=TOKEN_LISTS, block_tokens=st.integers(1, 5))
def test_the_chain_is_what_its_definition_says(tokens: list[int], block_tokens: int) -> None:
    key = root = root_key(b"n")
    expected = []
    for at in range(0, len(tokens) // block_tokens * block_tokens, block_tokens):
        key = sha256(key + struct.pack(f"<{block_tokens}i", *tokens[at : at + block_tokens])).digest()[:16]
        expected.append(key)
    assert extend_keys(root, pack_tokens(tokens), block_tokens) == expected


@given(tokens=TOKEN_LISTS, block_tokens=st.integers(1, 5), cut=st.integers(0, 40))
def test_a_chain_can_be_continued_from_any_block(tokens: list[int], block_tokens: int, cut: int) -> None:
    root, packed = root_key(b"n"), pack_tokens(tokens)
    whole = extend_keys(root, packed, block_tokens)
    cut = min(cut, len(whole))
    rest = packed[cut * block_tokens * TOKEN_BYTES :]
    assert whole[:cut] + extend_keys(whole[cut - 1] if cut else root, rest, block_tokens) == whole


@given(a=TOKEN_LISTS, b=TOKEN_LISTS, block_tokens=st.integers(1, 3))
def test_equal_keys_mean_equal_prefixes(a: list[int], b: list[int], block_tokens: int) -> None:
    root = root_key(b"n")
    left, right = (extend_keys(root, pack_tokens(t), block_tokens) for t in (a, a[: len(b)] + b))
    for i, (x, y) in enumerate(zip(left, right, strict=False)):
        end = (i + 1) * block_tokens
        assert (x == y) is (a[:end] == (a[: len(b)] + b)[:end])


@given(one=FIELDS, other=FIELDS, tokens=st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_chains_of_other_roots_never_meet(
    one: tuple[bytes, bytes, bytes], other: tuple[bytes, bytes, bytes], tokens: list[int]
) -> None:
    packed = pack_tokens(tokens)
    same = extend_keys(root_key(*one), packed, 1) == extend_keys(root_key(*other), packed, 1)
    assert same is (one == other)


@given(one=st.tuples(st.text(), st.text()), other=st.tuples(st.text(), st.text()))
def test_a_client_divides_its_own_domain_and_enters_no_other(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (domain_salt(*one) == domain_salt(*other)) is (one == other)


def test_neither_text_nor_length_is_confused_across_fields() -> None:
    assert domain_salt("ab", "c") != domain_salt("a", "bc") != domain_salt("abc")
    assert root_key(b"ab", b"") != root_key(b"a", b"b") != root_key(b"", b"ab")
    assert len(domain_salt("\ud800")) == KEY_BYTES, "any string a JSON body can carry"


@given(keys=st.lists(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES), max_size=9))
def test_joined_keys_come_apart(keys: list[bytes]) -> None:
    assert split_keys(join_keys(keys)) == keys
