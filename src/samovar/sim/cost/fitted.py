"""A cost model of one's own machine: six coefficients, fitted to measured steps by least squares.

For the CPU engine, whose steps are close to linear: every step reads the weights; rows, contexts and prompts come on
top, and a step with prompts is not one program, as decode steps are, but goes operator by operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import ConfigError
from samovar.sim.cost.shape import StepShape
from samovar.sim.cost.step_cost import StepCost

Array = NDArray[np.float64]

_ROUNDS = 6
_COUNT = 6
"""Coefficients."""


class StepCoefficients(msgspec.Struct, frozen=True):
    """Seconds. None is negative, so more work never takes less time."""

    base_s: float
    decode_row_s: float
    context_token_s: float
    prefill_token_s: float
    prefill_pair_s: float
    """Of a prompt's token with one it attends to."""
    prefill_step_s: float = 0.0
    """Of a step with any prompt."""


def features(shape: StepShape) -> tuple[float, ...]:
    """In the order of StepCoefficients."""
    pairs = sum(chunk.pairs for chunk in shape.chunks)
    return (1.0, shape.decode_rows, shape.context_tokens, shape.prefill_tokens, pairs, 1.0 if shape.chunks else 0.0)


def fit_coefficients(rows: Sequence[tuple[StepShape, float]]) -> StepCoefficients:
    """Least squares of relative errors under the condition that no coefficient is negative: the best of all subsets of
    coefficients whose own least-squares solution has none. Errors are taken in relation to what the fit says of a step,
    round after round: in relation to what was measured, a step that took long by chance would count less than one that
    was as short, and the model would be too fast. Raises ConfigError with fewer steps than coefficients, or steps that
    took no time."""
    if len(rows) < _COUNT:
        raise ConfigError(f"{len(rows)} measured steps; fitting six coefficients takes at least {_COUNT}")
    seconds = np.array([time for _, time in rows], np.float64)
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise ConfigError("a measured step took no time; every one must take more than 0 s")
    matrix = np.array([features(shape) for shape, _ in rows], np.float64)
    expected = seconds
    for _ in range(_ROUNDS):
        found = _fit(matrix / expected[:, None], seconds / expected)
        expected = np.maximum(matrix @ found, seconds.min())
    return StepCoefficients(*(float(value) for value in found))


def _fit(matrix: Array, wanted: Array) -> Array:
    scale = np.where((largest := np.abs(matrix).max(axis=0)) > 0, largest, 1.0)
    best, least = np.zeros(_COUNT), np.inf
    for size in range(1, _COUNT + 1):
        for chosen in combinations(range(_COUNT), size):
            found, error = _solve(matrix[:, chosen] / scale[list(chosen)], wanted)
            if error < least * (1 - 1e-9) and (found >= 0).all():
                best, least = np.zeros(_COUNT), error
                best[list(chosen)] = found / scale[list(chosen)]
    return best


def _solve(matrix: Array, wanted: Array) -> tuple[Array, float]:
    """What comes closest to what is wanted of every row, and the squares of what is missing."""
    found: Array = np.linalg.lstsq(matrix, wanted, rcond=None)[0].astype(np.float64)
    missing = matrix @ found - wanted
    return found, float(missing @ missing)


class FittedModel:
    """One engine on its own."""

    def __init__(self, coefficients: StepCoefficients) -> None:
        self.coefficients = coefficients

    def step_s(self, shapes: Sequence[StepShape]) -> StepCost:
        if len(shapes) != 1:
            raise ValueError(f"{len(shapes)} shapes for 1 rank")
        found, shape = self.coefficients, shapes[0]
        seconds = (
            found.base_s
            + found.decode_row_s * shape.decode_sequences * shape.rows_per_sequence
            + found.context_token_s * shape.context_tokens
            + (found.prefill_step_s if shape.chunks else 0.0)
        )
        for chunk in shape.chunks:
            new = chunk.new_tokens
            pairs = new * (chunk.context_tokens + new / 2)
            seconds += found.prefill_token_s * new + found.prefill_pair_s * pairs
        return StepCost(seconds, measured_s=seconds, path="measured")
