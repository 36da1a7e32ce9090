"""History made of the server's own answers, as real agents send it.

Lengths, cuts and sharing stay as recorded: a block id names a content, and its content is whatever the first prompt
with that id put there. In a turn that goes on from the last one that is the tail of the last prompt, the answer that
came, and new tokens for the rest; elsewhere it is synthesised.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.workload.prompts import Tokens, TreePrompts

_NO_TOKENS = np.empty(0, dtype=np.int32)


class LiveHistory:
    """Contents of one visit to a session tree. Grows with the distinct blocks of the tree, until it is dropped."""

    def __init__(self, prompts: TreePrompts) -> None:
        self._prompts = prompts
        self._content: dict[int, Tokens] = {}
        self._last: dict[int, tuple[Tokens, Tokens]] = {}
        """Per stream the last prompt and its answer."""

    def prompt(self, stream: int, ids: NDArray[np.int64], num_tokens: int, tail: int) -> Tokens:
        size = self._prompts.block_tokens
        names = [int(i) for i in ids[: -(-num_tokens // size)]]
        known = 0
        while known < len(names) and len(self._content.get(names[known], _NO_TOKENS)) == size:
            known += 1
        kept = min(known * size, num_tokens)
        made = self._prompts.prompt(ids, num_tokens, tail)
        if known:
            made[:kept] = np.concatenate([self._content[name] for name in names[:known]])[:kept]
        before, answer = self._last.get(stream, (_NO_TOKENS, _NO_TOKENS))
        if kept == len(before) // size * size:
            history = np.concatenate([before[kept:], answer])[: num_tokens - kept]
            made[kept : kept + len(history)] = history
        for at in range(known, num_tokens // size):
            if at < len(names):
                self._content[names[at]] = made[at * size : (at + 1) * size]
        self._last[stream] = (made, _NO_TOKENS)
        return made

    def answered(self, stream: int, answer: Tokens) -> None:
        """What came back for the stream's last prompt, possibly nothing."""
        self._last[stream] = (self._last[stream][0], answer)
