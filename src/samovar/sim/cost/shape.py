"""What a rank does in one step, as far as its time depends on it.

msgspec structs, as plans are: one is made per rank and step, a million times in a run.
"""

from __future__ import annotations

import msgspec


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Part of a prompt: `new_tokens` are computed, `context_tokens` before them are there already."""

    new_tokens: int
    context_tokens: int = 0

    @property
    def pairs(self) -> float:
        """Of a new token with a token it attends to."""
        return self.new_tokens * (self.context_tokens + self.new_tokens / 2)


class StepShape(msgspec.Struct, frozen=True, gc=False):
    """One rank's part. All zero: a rank that has nothing to do and runs an empty step with the others."""

    decode_sequences: int = 0
    context_tokens: int = 0
    """Of all decoding sequences together."""
    rows_per_sequence: int = 1
    """1 and the drafted tokens that are verified."""
    chunks: tuple[Chunk, ...] = ()

    @property
    def decode_rows(self) -> int:
        return self.decode_sequences * self.rows_per_sequence

    @property
    def prefill_tokens(self) -> int:
        return sum(chunk.new_tokens for chunk in self.chunks)

    @property
    def kv_read_tokens(self) -> int:
        return self.context_tokens + sum(chunk.context_tokens for chunk in self.chunks)

    @property
    def sequences(self) -> int:
        return self.decode_sequences + len(self.chunks)
