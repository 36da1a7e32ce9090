"""What sampling parameters do to one row of logits: penalties, bias, masks, and the filters before a draw.

Everything works on float64 NumPy rows, one row at a time, so that the result cannot depend on the rest of the batch
nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import math

import numpy as np
from numpy.typing import NDArray

from samovar.core.sampling import SamplingParams

Float64Row = NDArray[np.float64]


class PenaltyCounts:
    """Which tokens the prompt holds and how often the output holds each; kept by one request that asked for penalties.

    Adding a token costs O(1), so decoding never walks the context.
    """

    __slots__ = ("in_prompt", "output")

    def __init__(self, prompt: NDArray[np.int32], output: NDArray[np.int32], vocab_size: int) -> None:
        self.in_prompt = np.zeros(vocab_size, dtype=np.bool_)
        self.in_prompt[prompt] = True
        self.output = np.bincount(output, minlength=vocab_size).astype(np.int32)

    def add(self, token: int) -> None:
        self.output[token] += 1

    def remove(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self.output[token] -= 1


def wants_counts(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0


def changes_logits(params: SamplingParams, position: int) -> bool:
    """Whether `adjust` would do anything, for a token at output `position`."""
    return bool(params.logit_bias) or wants_counts(params) or (position < params.min_tokens and _has_stops(params))


def has_filters(params: SamplingParams) -> bool:
    """Whether a draw is from less than everything."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _has_stops(params: SamplingParams) -> bool:
    return len(params.stop_token_ids) > 0


def adjust(row: Float64Row, params: SamplingParams, position: int, counts: PenaltyCounts | None) -> None:
    """Applies in place what can change even a greedy choice: bias and the min_tokens mask, then the repetition penalty
    (prompt and output; divides positive logits, multiplies others), then frequency and presence (output only)."""
    for token, bias in params.logit_bias:
        row[token] += bias
    if position < params.min_tokens and _has_stops(params):
        row[list(params.stop_token_ids)] = -math.inf
    if counts is None:
        return
    if params.repetition_penalty != 1.0:
        seen = np.flatnonzero(counts.in_prompt | (counts.output > 0))
        values = row[seen]
        row[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
        made = np.flatnonzero(counts.output)
        row[made] -= params.frequency_penalty * counts.output[made] + params.presence_penalty


def filtered_weights(row: Float64Row, params: SamplingParams) -> Float64Row:
    """Temperature, min_p, top_k, top_p, in this order (vLLM's), of a row with at least one finite logit and a
    temperature above 0. Returns unnormalised probabilities [V], 0 for what was filtered; the best token's is 1.

    Tokens that tie with the last one kept by top_k or top_p are kept too, so a tie never depends on a sort's order.
    """
    # Subtracting the maximum first keeps tiny temperatures finite.
    scaled = (row - row.max()) / params.temperature
    if params.min_p > 0.0:
        scaled[scaled < math.log(params.min_p)] = -math.inf
    if 0 < params.top_k < scaled.size:
        at = scaled.size - params.top_k
        scaled[scaled < np.partition(scaled, at)[at]] = -math.inf
    weights: Float64Row = np.exp(scaled)
    if params.top_p < 1.0:
        weights[weights < _nucleus_threshold(weights, params.top_p)] = 0.0
    return weights


def _nucleus_threshold(weights: Float64Row, top_p: float) -> float:
    """The smallest weight in the smallest set of best tokens that holds at least `top_p` of the mass."""
    best_first = np.sort(weights[weights > 0.0])[::-1]
    mass = np.cumsum(best_first)
    last = int(np.searchsorted(mass, top_p * mass[-1], side="left"))
    return float(best_first[min(last, best_first.size - 1)])


def draw(weights: Float64Row, u: float) -> int:
    """The token at which the cumulative weight, in token order, passes `u` (in [0, 1)) of the total."""
    cumulative = np.cumsum(weights)
    at = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    # Rounding can carry u * total up to the total itself; then it is the last token that has any weight.
    return at if at < weights.size else int(np.flatnonzero(weights)[-1])


def best_first(token_ids: Sequence[int], logprobs: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """Pairs by falling log probability, lower id first on ties."""
    return tuple(sorted(zip(token_ids, logprobs, strict=True), key=lambda pair: (-pair[1], pair[0])))
