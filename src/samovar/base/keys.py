"""Block keys: one name for a prefix, the same in scheduler, router, pool and simulator.

    root   = H(namespace, salt, extra)          each field preceded by its length in 4 bytes
    key[i] = H(key[i-1] || tokens of block i)   key[-1] = root

H is SHA-256 cut to 16 bytes: collisions must be out of an attacker's reach, since a collision hands one prompt's
KV to another. Token ids are little-endian int32, so a block is a slice of the prompt's bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha256
import sys

KEY_BYTES = 16
TOKEN_BYTES = 4


def digest(fields: Iterable[bytes]) -> bytes:
    """16 bytes; no two different lists of fields have the same input to the hash."""
    h = sha256()
    for field in fields:
        h.update(len(field).to_bytes(4, "little"))
        h.update(field)
    return h.digest()[:KEY_BYTES]


def root_key(namespace: bytes, salt: bytes = b"", extra: bytes = b"") -> bytes:
    """The chain's start. `namespace` is what makes logical KV differ: weights, tokenizer, KV type, block size x DCP."""
    return digest((namespace, salt, extra))


def domain_salt(tenant: str, cache_salt: str = "") -> bytes:
    """A client can divide its own tenant's domain with `cache_salt`, never enter another tenant's."""
    return digest((tenant.encode("utf-8", "surrogatepass"), cache_salt.encode("utf-8", "surrogatepass")))


def pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Token ids as little-endian int32, the form they have in requests, keys and plans."""
    packed = array("i", token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(data: bytes | memoryview) -> list[int]:
    packed = array("i")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def extend_keys(parent: bytes, tokens: bytes, block_tokens: int) -> list[bytes]:
    """Keys of the full blocks in `tokens` (packed ids) that follow the block named `parent` (or the root)."""
    step = block_tokens * TOKEN_BYTES
    keys: list[bytes] = []
    append = keys.append
    for at in range(0, len(tokens) - step + 1, step):
        parent = sha256(parent + tokens[at : at + step]).digest()[:KEY_BYTES]
        append(parent)
    return keys


def join_keys(keys: Iterable[bytes]) -> bytes:
    return b"".join(keys)


def split_keys(joined: bytes) -> list[bytes]:
    return [joined[at : at + KEY_BYTES] for at in range(0, len(joined), KEY_BYTES)]
