"""A distribution in a handful of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Spread:
    """All 0 when there is nothing to describe. Percentiles interpolate between neighbours."""

    count: int = 0
    mean: float = 0.0
    min: float = 0.0
    p10: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0


def spread(values: Sequence[float] | NDArray[np.int64] | NDArray[np.float64]) -> Spread:
    found = np.asarray(values, dtype=np.float64)
    if not found.size:
        return Spread()
    p10, p50, p90, p99 = (float(value) for value in np.percentile(found, (10, 50, 90, 99)))
    return Spread(found.size, float(found.mean()), float(found.min()), p10, p50, p90, p99, float(found.max()))
