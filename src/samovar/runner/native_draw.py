"""Sampling by the native kernels: many rows at once, each on a thread."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from samovar.core.sampling import SamplingParams
from samovar.kernels.packed_ops import Draw
from samovar.runner.sampler import DrawMany


def drawing(draw: Draw) -> DrawMany:
    """The same distribution as `filters`, in float32 with sums in float64: a draw at the very border between two tokens
    may fall on the other one."""

    def draw_many(logits: Tensor, rows: list[int], params: list[SamplingParams], numbers: list[float]) -> list[int]:
        tokens = np.empty(len(rows), dtype=np.int32)
        draw(
            logits.numpy(),
            np.array(rows, dtype=np.int32),
            np.array([one.temperature for one in params], dtype=np.float64),
            np.array([one.min_p for one in params], dtype=np.float64),
            np.array([max(one.top_k, 0) for one in params], dtype=np.int32),
            np.array([one.top_p for one in params], dtype=np.float64),
            np.array(numbers, dtype=np.float64),
            tokens,
        )
        return [int(token) for token in tokens]

    return draw_many
