"""Whether loaded blocks hold what computing them gives (`--kv-verify`)."""

from __future__ import annotations

import torch
from torch import Tensor

from samovar.core.plan import Compare
from samovar.models.batch import KVCache

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Absolute, and relative to the larger of both: rounding of PyTorch's operators, whose bits depend on how a prompt was
cut. Damage that is smaller changes no more than that."""


def differing(cache: KVCache, compare: Compare) -> tuple[int, ...]:
    """Positions of `compare` whose blocks are not the same: in a tiled pool bit for bit, elsewhere up to rounding."""
    pairs = zip(compare.computed, compare.loaded, strict=True)
    return tuple(i for i, (mine, theirs) in enumerate(pairs) if not _equal(cache, mine, theirs))


def _equal(cache: KVCache, mine: int, theirs: int) -> bool:
    if cache.tiles:
        return all(bool((tiles[mine] == tiles[theirs]).all()) for pair in cache.tiles for tiles in pair)
    return all(_close(pool[mine], pool[theirs]) for pool in (*cache.keys, *cache.values))


def _close(a: Tensor, b: Tensor) -> bool:
    tolerance = _TOLERANCE[a.dtype]
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)
