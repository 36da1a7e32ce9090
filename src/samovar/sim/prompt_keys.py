"""Block keys of prompts that nobody ever writes out: chains over what the benchmark would make the tokens from.

Two blocks get one key exactly when the benchmark would send equal tokens in them and in all before them. A prompt that
goes on from its stream's last one costs the hashes of its new blocks only.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from samovar.base.keys import KEY_BYTES, root_key
from samovar.workload.prompts import TokenRange
from samovar.workload.prompts_maker import PromptMaker
from samovar.workload.replay import Launch

ROOT = root_key(b"simulated")
_RUN = "simulated"


@dataclass(slots=True)
class _LastPrompt:
    visit: int
    seeds: NDArray[np.uint64]
    keys: bytes


class PromptKeys:
    """Of one run. Remembers the last prompt of every live stream: 16 bytes a block, and 8 a block of the trace."""

    def __init__(self, block_tokens: int, concurrency: int) -> None:
        """`block_tokens`: the modelled engine's; any size, whatever the trace's."""
        self._block_tokens = block_tokens
        self._maker = PromptMaker(TokenRange(), run=_RUN, point=str(concurrency))
        self._last: dict[tuple[int, int], _LastPrompt] = {}

    def keys(self, launch: Launch) -> bytes:
        """Of the prompt's full blocks, 16 bytes each in one string; the chain begins at ROOT."""
        place = (launch.lane, launch.call.stream)
        seeds = self._maker.seeds(launch)
        last = self._last.get(place)
        if last is not None and last.visit != launch.visit:
            self._forget(launch.lane)
            last = None
        size = launch.script.tree.block_tokens
        num_blocks = max(1, launch.call.recorded.input_tokens) // self._block_tokens
        known = b""
        if last is not None:
            kept = min(num_blocks, _common(last.seeds, seeds) * size // self._block_tokens)
            known = last.keys[: kept * KEY_BYTES]
        keys = known + self._hash(known, seeds, size, num_blocks)
        self._last[place] = _LastPrompt(launch.visit, seeds, keys)
        return keys

    def _hash(self, known: bytes, seeds: NDArray[np.uint64], size: int, num_blocks: int) -> bytes:
        """Keys of the blocks behind the `known` ones, up to `num_blocks` in all. A block is named by all seeds that it
        has tokens of: where it begins among them follows from its place in the chain."""
        first = len(known) // KEY_BYTES
        key = known[-KEY_BYTES:] or ROOT
        data, own = seeds.astype("<u8", copy=False).tobytes(), self._block_tokens
        found: list[bytes] = []
        for at in range(first * own, num_blocks * own, own):
            begin, end = at // size * 8, (at + own - 1) // size * 8 + 8
            key = sha256(key + data[begin:end]).digest()[:KEY_BYTES]
            found.append(key)
        return b"".join(found)

    def _forget(self, lane: int) -> None:
        """The lane has another tree now."""
        for place in [place for place in self._last if place[0] == lane]:
            del self._last[place]


def _common(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> int:
    """Leading seeds in common."""
    size = min(len(a), len(b))
    differs = np.flatnonzero(a[:size] != b[:size])
    return int(differs[0]) if len(differs) else size
