"""What the native kernels' team of threads can do at best on this machine, for benchmarks. Import it only where
`native_library()` found something."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samovar.kernels.cpu import _native


class NativeLimits:
    def __init__(self, isa: str, threads: int) -> None:
        self._context = _native.Context(isa, threads)

    def read_all(self, data: NDArray[np.uint8]) -> None:
        """Reads every cache line once, each thread its share."""
        self._context.read_all(data)

    def multiply(self, int8: bool, repeats: int) -> int:
        """Products of int8 or bf16 from registers alone on every thread; returns the operations of all, two per
        multiply-add. `repeats` is at most 2^24."""
        return self._context.multiply(int8, repeats)
