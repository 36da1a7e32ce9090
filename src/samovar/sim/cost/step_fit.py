"""A table from measured steps that lie anywhere: knots where the steps are, values by least squares.

The time between knots is linear in each axis, so every step says something about the eight knots around it. Knots that
few or no steps surround continue their neighbours' slopes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import ConfigError
from samovar.sim.cost.step_table import AXES, StepRow, StepTable, table_of

Array = NDArray[np.float64]

_SMOOTHING = 1e-4
"""Weight of a bend between knots, in relation to a step near a knot: enough to settle what no step does."""
_FLATNESS = 1e-8
"""Weight of a difference, where bends settle nothing."""
_LEAST_EXPECTED = 0.01
"""Of the measured time: where a first fit says nothing, or less."""


def fit_table(rows: Sequence[StepRow], where: str, max_knots: int = 10) -> StepTable:
    """Of a whole log. A step's error counts in relation to what steps like it take: short ones do not drown in a
    few long ones. Raises ConfigError for a log without steps or with impossible ones."""
    _check(rows, where)
    knots = tuple(_knots(np.array([getattr(row, axis) for row in rows], np.float64), max_knots) for axis in AXES)
    places = {(row.batch, row.prefill_tokens, row.kv_read_tokens) for row in rows}
    if len(places) == knots[0].size * knots[1].size * knots[2].size and all(
        len({place[axis] for place in places}) == knots[axis].size for axis in range(3)
    ):
        return table_of(rows, where)
    values = _least_squares(rows, knots)
    batch, prefill, kv = (tuple(float(item) for item in axis) for axis in knots)
    return StepTable((batch, prefill, kv), tuple(float(max(value, 0.0)) for value in values))


def _check(rows: Sequence[StepRow], where: str) -> None:
    if not rows:
        raise ConfigError(f"{where}: no steps")
    for index, row in enumerate(rows):
        for field in (*AXES, "seconds"):
            value = getattr(row, field)
            low = value <= 0 if field == "seconds" else value < 0
            if low or not np.isfinite(value):
                bound = "more than 0" if field == "seconds" else "0 or more"
                raise ConfigError(f"{where}: step {index}: {field} is {value!r}; it must be {bound}")


def _knots(values: Array, most: int) -> Array:
    """All values when they are few; else quantiles, with 0 and the smallest value above it apart: a step with a prompt
    is another thing than one without."""
    distinct = np.unique(values)
    if distinct.size <= most:
        return distinct
    above = distinct[distinct > 0]
    ends = [distinct[0], above[0], distinct[-1]]
    inner = np.quantile(above, np.linspace(0, 1, most - 1)[1:-1], method="nearest")
    return np.unique(np.concatenate((ends, inner)))


def _least_squares(rows: Sequence[StepRow], knots: tuple[Array, ...]) -> Array:
    """Values at all knots, flattened as in StepTable. In relation to the measured times, steps that took longer than
    others like them would hardly count and all would come out too fast; so a first fit says what to expect."""
    seconds = np.array([row.seconds for row in rows], np.float64)
    at = np.zeros((len(rows), 1), np.int64)
    shares = np.ones((len(rows), 1), np.float64)
    for axis, name in enumerate(AXES):
        at, shares = _around(np.array([getattr(row, name) for row in rows], np.float64), knots[axis], at, shares)
    first = _solve(at, shares, seconds, seconds, knots)
    expected = (shares * first[at]).sum(axis=1)
    return _solve(at, shares, seconds, np.maximum(expected, _LEAST_EXPECTED * seconds), knots)


def _solve(at: NDArray[np.int64], shares: Array, seconds: Array, expected: Array, knots: tuple[Array, ...]) -> Array:
    """By the normal equations: the matrix is small, however many steps there are."""
    weights, wanted = shares / expected[:, None], seconds / expected
    size = int(np.prod([axis.size for axis in knots]))
    matrix, right = np.zeros(size * size), np.zeros(size)
    for corner in range(at.shape[1]):
        right += np.bincount(at[:, corner], weights[:, corner] * wanted, size)
        for other in range(at.shape[1]):
            cells = at[:, corner] * size + at[:, other]
            matrix += np.bincount(cells, weights[:, corner] * weights[:, other], size * size)
    square = matrix.reshape(size, size)
    scale = float(np.trace(square)) / size
    found: Array = np.linalg.solve(square + scale * _smoothness(knots), right).astype(np.float64, copy=False)
    return found


def _around(values: Array, knots: Array, at: NDArray[np.int64], weights: Array) -> tuple[NDArray[np.int64], Array]:
    """Doubles the corners: each with its share of the knot below and the one above on one more axis."""
    if knots.size == 1:
        return at, weights
    low = np.clip(np.searchsorted(knots, values, "right") - 1, 0, knots.size - 2)
    share = (values - knots[low]) / (knots[low + 1] - knots[low])
    places = at * knots.size + low[:, None]
    return (
        np.concatenate((places, places + 1), axis=1),
        np.concatenate((weights * (1 - share)[:, None], weights * share[:, None]), axis=1),
    )


def _smoothness(knots: tuple[Array, ...]) -> Array:
    """Sum over the axes of squared bends and, much less, of squared slopes."""
    sizes = [axis.size for axis in knots]
    found = np.zeros((int(np.prod(sizes)),) * 2)
    for axis, places in enumerate(knots):
        penalty = _bends(places, AXES[axis] == "prefill_tokens" and places[0] == 0)
        left, right = int(np.prod(sizes[:axis])), int(np.prod(sizes[axis + 1 :]))
        found += np.kron(np.kron(np.eye(left), penalty), np.eye(right))
    return found


def _bends(knots: Array, jumps: bool) -> Array:
    """Of one axis, scaled to its length so that all axes count alike. `jumps`: there is nothing smooth about the step
    from the first knot to the second."""
    steps = np.diff(np.eye(knots.size), axis=0)
    found: Array = _FLATNESS * steps.T @ steps
    first = 1 if jumps else 0
    if knots.size - first > 2:
        gaps = np.diff(knots)[first:] / (knots[-1] - knots[0])
        slopes = steps[first:] / gaps[:, None]
        bends = np.diff(slopes, axis=0) * ((gaps[:-1] + gaps[1:]) / 2)[:, None]
        found = found + _SMOOTHING * bends.T @ bends
    return found
