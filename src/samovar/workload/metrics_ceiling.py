"""The hit-rate ceiling: the very prompts that were sent, through a cache that never forgets.

Rules are the server's: whole blocks of its size, each naming everything before it, and never the last prompt token,
which has to be computed to get an answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import ConfigError
from samovar.base.keys import KEY_BYTES, extend_keys, join_keys, root_key, split_keys

_ROOT = root_key(b"ceiling")


class InfiniteCache:
    """Holds 16 bytes per distinct block ever seen. A prompt is there for others from the moment it is looked up: a
    server holds back a second prompt whose blocks another is computing."""

    def __init__(self, block_tokens: int) -> None:
        if block_tokens < 1:
            raise ConfigError(f"--block-size is {block_tokens}; it must be at least 1")
        self._block_tokens = block_tokens
        self._seen: set[bytes] = set()

    def look_up(self, tokens: NDArray[np.int32]) -> int:
        """Tokens of the prompt that are found; afterwards the whole prompt is."""
        return self.look_up_keys(join_keys(self._keys(tokens)), len(tokens))

    def look_up_keys(self, keys: bytes, num_tokens: int) -> int:
        """As `look_up`, by the keys of the prompt's full blocks, 16 bytes each in one string: from one root for all."""
        seen = self._seen
        found, end = 0, len(keys) // KEY_BYTES
        while found < end:  # what is seen of a chain is its beginning, so this bisects
            middle = (found + end) // 2
            if keys[middle * KEY_BYTES : (middle + 1) * KEY_BYTES] in seen:
                found = middle + 1
            else:
                end = middle
        seen.update(split_keys(keys[found * KEY_BYTES :]))
        return min(found, max(0, num_tokens - 1) // self._block_tokens) * self._block_tokens

    def add(self, tokens: NDArray[np.int32]) -> None:
        """A prompt with its answer, whose KV the server wrote too."""
        self._seen.update(self._keys(tokens))

    def _keys(self, tokens: NDArray[np.int32]) -> list[bytes]:
        return extend_keys(_ROOT, tokens.astype("<i4", copy=False).tobytes(), self._block_tokens)
