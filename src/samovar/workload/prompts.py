"""Token ids for recorded block ids: the same id always becomes the same tokens, so prefixes repeat exactly.

Recorded ids name a block together with all that is before it. What a block says does not matter to a server; that it
says the same each time does. Tokens come from a hash of (run, tree, id, position), computed for a whole prompt at once.

Each visit of a tree carries a marker, so that a tree replayed twice does not find its own earlier visit in the cache.
The marker is part of what every block behind the declared system prefix is made from, instead of extra tokens in front:
lengths stay as recorded, and streams that share blocks share them still. System prefixes repeat over visits, as they do
for real agents of one installation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import ConfigError

Tokens = NDArray[np.int32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Ids from which prompts are made: [low, high). The default lies inside the vocabulary of every common model and
    clear of special tokens, which sit at either end."""

    low: int = 1_000
    high: int = 30_000

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high - 1 or self.high > 2**31:
            raise ConfigError(f"--token-range {self.low}:{self.high}: must be LOW:HIGH with 0 <= LOW < HIGH - 1")


def seed_of(*names: object) -> int:
    """64 bits from names, the same on every machine."""
    digest = sha256("\0".join(str(name) for name in names).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")


class TreePrompts:
    """Prompts of one visit to a session tree. Holds no prompt; equal arguments give equal tokens."""

    def __init__(
        self, tokens: TokenRange, *, scope: int, marker: int, block_tokens: int, system_ids: Iterable[int] = ()
    ) -> None:
        """`scope`: seed of the name space that the ids belong to. `system_ids`: blocks that do not carry the marker."""
        self._tokens = tokens
        self._scope = scope
        self._marker = scope ^ marker
        self.block_tokens = block_tokens
        self._system_ids = np.fromiter(sorted(set(system_ids)), dtype=np.int64)

    def prompt(self, ids: NDArray[np.int64], num_tokens: int, tail: int) -> Tokens:
        """`num_tokens` tokens, [num_tokens] int32. What the ids do not cover is made from `tail`, a seed of its own."""
        seeds = self.seeds(ids, num_tokens, tail)
        places = np.arange(1, self.block_tokens + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(seeds[:, None] + places[None, :]).ravel()[:num_tokens]
        width = np.uint64(self._tokens.high - self._tokens.low)
        return (bits % width).astype(np.int32) + np.int32(self._tokens.low)

    def seeds(self, ids: NDArray[np.int64], num_tokens: int, tail: int) -> NDArray[np.uint64]:
        """What each block of that prompt is made from, the partial last one included: equal seeds are equal tokens."""
        seeds = np.full(-(-num_tokens // self.block_tokens), np.uint64(self._marker ^ tail), dtype=np.uint64)
        known = ids[: len(seeds)]
        salt = np.where(np.isin(known, self._system_ids), np.uint64(self._scope), np.uint64(self._marker))
        seeds[: len(known)] = _mix(known.astype(np.uint64) ^ _mix(salt))
        # Blocks behind the ids share one seed: their position tells them apart.
        seeds[len(known) :] += np.arange(len(seeds) - len(known), dtype=np.uint64)
        return seeds


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose outputs look random."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))
