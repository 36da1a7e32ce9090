"""Which tokens may come next, as bits, and what that makes of a row of logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

FORBIDDEN = np.float32(-1e30)
"""Added to the logit of a token that may not come: absorbs it, and stays finite."""

SUNK = 80.0
"""e to the minus this is the weight of a forbidden token in a draw, beside the best one's 1: a normal number, and all
of a vocabulary together less than what a draw of 53 bits can tell from 0."""

_BYTE_BIAS: NDArray[np.float32] = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), np.float32(0), FORBIDDEN
).astype(np.float32)
"""[256, 8]: eight tokens' bias for each byte of bits."""


class MaskBuffers:
    """Memory of the masks of one step, kept from step to step: fresh pages would cost more than filling them. Rows of
    bits [R, W] uint32 and of floats [R, 32 W], of which the first V are tokens; grows as needed."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self._words = -(-num_tokens // 32)
        self.bits: NDArray[np.uint32] = np.empty((0, self._words), dtype=np.uint32)
        self.floats: NDArray[np.float32] = np.empty((0, 32 * self._words), dtype=np.float32)
        self._address = 0
        self.bits_bytes = 4 * self._words
        """Of one row."""

    def address(self, row: int) -> int:
        """Where a row of bits begins in memory."""
        return self._address + row * self.bits_bytes

    def reserve(self, rows: int) -> None:
        """Masks made before are void when this grows, as they are in the next step anyway."""
        if rows > len(self.bits):
            rows = max(rows, 2 * len(self.bits))
            self.bits = np.empty((rows, self._words), dtype=np.uint32)
            self.floats = np.empty((rows, 32 * self._words), dtype=np.float32)
            self._address = self.bits.ctypes.data


class TokenMask:
    """Row `row` of the buffers: valid until the next step's masks are begun. With a `fault` there is no mask."""

    __slots__ = ("_bytes", "_expanded", "buffers", "fault", "row")

    def __init__(self, buffers: MaskBuffers, row: int, fault: str | None = None) -> None:
        self.buffers = buffers
        self.row = row
        self.fault = fault
        self._bytes = buffers.bits[row].view(np.uint8)
        self._expanded = False

    def allows(self, token: int) -> bool:
        return bool(self._bytes[token >> 3] >> (token & 7) & 1)

    def put(self, tokens: Sequence[int], allowed: bool) -> None:
        for token in tokens:
            if allowed:
                self._bytes[token >> 3] |= 1 << (token & 7)
            else:
                self._bytes[token >> 3] &= ~(1 << (token & 7)) & 0xFF

    def any(self) -> bool:
        """Whether a token is allowed at all."""
        return bool(self.buffers.bits[self.row].any())

    def forbidden(self) -> NDArray[np.bool_]:
        """[V]"""
        allowed = np.unpackbits(self._bytes, count=self.buffers.num_tokens, bitorder="little")
        forbidden: NDArray[np.bool_] = allowed == 0
        return forbidden

    def expand(self) -> None:
        """Writes the row of floats: 0 for what is allowed, FORBIDDEN for the rest."""
        if not self._expanded:
            self._expanded = True
            out = self.buffers.floats[self.row].reshape(-1, 8)
            # `take` is ten times as fast as an index.
            np.take(_BYTE_BIAS, self._bytes, axis=0, out=out, mode="clip")

    def best(self, logits: NDArray[np.float32]) -> int:
        """The best token of those allowed, the lowest of equals. `logits` [V] are finite."""
        return int(self._masked(logits).argmax())

    def sink(self, logits: NDArray[np.float32], temperature: float) -> None:
        """Makes the row of floats `logits` [V] with what is forbidden so far below the best that is allowed that a draw
        at this temperature practically never takes it; not further, since exponentials that underflow take several
        times as long. Call `best` or this once, not both."""
        masked = self._masked(logits)
        np.maximum(masked, masked.max() - np.float32(SUNK * temperature), out=masked)

    def _masked(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        self.expand()
        masked = self.buffers.floats[self.row, : self.buffers.num_tokens]
        np.add(logits, masked, out=masked)
        return masked


def sunk_rows(masks: Sequence[TokenMask]) -> tuple[Tensor, list[int]]:
    """The logits that `sink` made, as a matrix, and each mask's row in it."""
    buffers = masks[0].buffers
    return from_numpy(buffers.floats[:, : buffers.num_tokens]), [mask.row for mask in masks]
