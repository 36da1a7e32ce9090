"""What an infinite cache would have found: a Bloom filter over every block key that was ever computed.

A key's 16 bytes are a hash already, so its four words are the filter's four hashes. 8 MiB tell about 5 million blocks
apart with one wrong yes in 300; more of them and the ceiling is overestimated, never underestimated (but where eight
new keys at the end of a chain are all wrong ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from samovar.base.ids import BlockKey

FILTER_BYTES = 8 << 20
_WORDS = Struct("<4I")
_SURELY_KNOWN = 8
"""So many keys in a row are in the filter only if their chain was added."""


class Ceiling:
    __slots__ = ("_bits", "_mask")

    def __init__(self, num_bytes: int = FILTER_BYTES) -> None:
        """`num_bytes`: a power of two."""
        assert num_bytes & (num_bytes - 1) == 0
        self._bits = bytearray(num_bytes)
        self._mask = num_bytes * 8 - 1

    def add(self, keys: Sequence[BlockKey]) -> None:
        """A chain from its start. Where the last ones are new and those before were added, only the new ones cost."""
        bits, mask, words = self._bits, self._mask, _WORDS.unpack
        known = 0
        for key in reversed(keys):
            if key in self:
                known += 1
                if known == _SURELY_KNOWN:
                    return
                continue
            known = 0
            for word in words(key):
                at = word & mask
                bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, key: BlockKey) -> bool:
        bits, mask = self._bits, self._mask
        for word in _WORDS.unpack(key):
            at = word & mask
            if not bits[at >> 3] & (1 << (at & 7)):
                return False
        return True

    def match(self, keys: Sequence[BlockKey], limit: int) -> int:
        """Leading keys that were added: chains are added from their start, so this is a bisection."""
        low, high = 0, limit
        while low < high:
            mid = (low + high) // 2
            if keys[mid] in self:
                low = mid + 1
            else:
                high = mid
        return low
