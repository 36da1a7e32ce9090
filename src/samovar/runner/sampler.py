"""From a step's logits to tokens and their log probabilities.

The order is vLLM's (v1/sample/sampler.py): log probabilities of the raw logits for reporting; logit_bias and the
min_tokens mask; repetition, frequency, presence penalties; the grammar's mask, which nothing before it can lift; then
greedy argmax, or temperature, min_p, top_k, top_p and a draw. A row's token is a function of its own logits,
parameters, grammar and position alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from samovar.base.ids import RequestId
from samovar.core.plan import TokenLogprobs
from samovar.core.sampling import SamplingParams
from samovar.runner.chance import uniform
from samovar.runner.filters import (
    PenaltyCounts,
    adjust,
    best_first,
    changes_logits,
    draw,
    filtered_weights,
    has_filters,
)
from samovar.runner.grammar import RequestGrammar
from samovar.runner.token_mask import TokenMask, sunk_rows

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy, as in vLLM: dividing by them would only lose the logits' precision."""


SECOND_DRAW = 1 << 40
"""Beyond every output position: where the numbers of second draws begin."""

Best = Callable[[Tensor], tuple[list[int], list[bool]]]
"""logits [S, V] -> per row the lowest of its best tokens, and whether every logit is finite."""
DrawMany = Callable[[Tensor, list[int], list[SamplingParams], list[float]], list[int]]
"""(logits [S, V], rows, their parameters, a number in [0, 1) for each) -> their tokens, by the rules of `filters`."""


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """Whose token a row of logits becomes. `position` counts output tokens from 0; `counts` are there for penalties,
    `grammar` and the `output` so far for a constraint."""

    request_id: RequestId
    params: SamplingParams
    position: int
    counts: PenaltyCounts | None = None
    grammar: RequestGrammar | None = None
    output: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token per row that could be sampled; `logprobs[i]` is None for a row that asked for none."""

    tokens: list[int | None]
    logprobs: list[TokenLogprobs | None]
    faults: dict[int, str]
    """Why the other rows could not be, by row. Their tokens are None."""


def best_of(logits: Tensor) -> tuple[list[int], list[bool]]:
    """`Best` in PyTorch."""
    # argmax gives the first of equal maxima. A sum is finite only if every term is: one pass over the row and no
    # temporary as large as the logits.
    return logits.argmax(dim=-1).tolist(), torch.isfinite(logits.sum(dim=-1)).tolist()


def sample(
    logits: Tensor,
    rows: Sequence[SamplingRow],
    best: Best = best_of,
    draw_many: DrawMany | None = None,
    masks: Mapping[int, TokenMask] | None = None,
) -> Sampled:
    """logits [S, V] float32, read only; S rows. A row without a usable number to choose by is that row's fault alone:
    no request can make another's fail. `draw_many` takes the rows whose logits nothing else changes first; without it,
    and for the others, NumPy draws row by row. `masks`: by row, of those that have a grammar."""
    masks = masks or {}
    tokens: list[int | None] = [None] * len(rows)
    faults: dict[int, str] = {}
    drawn: list[int] = []
    chosen, finite = best(logits) if rows else ([], [])
    for at, (row, sound) in enumerate(zip(rows, finite, strict=True)):
        mask = masks.get(at)
        greedy = row.params.temperature < GREEDY_BELOW
        plain = not changes_logits(row.params, _judged_at(row, mask))
        if not sound:
            faults[at] = "the model gave logits that are not finite"
        elif mask is not None and mask.fault is not None:
            faults[at] = mask.fault
        elif greedy and plain:
            # The best of all tokens, where it is allowed, is the best of those allowed.
            tokens[at] = chosen[at] if mask is None or mask.allows(chosen[at]) else mask.best(logits[at].numpy())
        elif draw_many is not None and plain:
            drawn.append(at)
        else:
            tokens[at] = _sample_row(logits[at], row, mask)
            if tokens[at] is None:
                faults[at] = "penalties, bias and masks leave no token that could be sampled"
    if drawn and draw_many is not None:
        for at, token in _draw(logits, rows, drawn, masks, draw_many).items():
            tokens[at] = token
    return Sampled(tokens, _report(logits, rows, tokens), faults)


def _judged_at(row: SamplingRow, mask: TokenMask | None) -> int:
    """The output position that min_tokens is compared with: a mask has had its say on it."""
    return row.position if mask is None else max(row.position, row.params.min_tokens)


def _draw(
    logits: Tensor, rows: Sequence[SamplingRow], drawn: list[int], masks: Mapping[int, TokenMask], draw_many: DrawMany
) -> dict[int, int | None]:
    """Tokens by row. Where no filter looks at the distribution as a whole, a constrained row is drawn like a free one,
    and once more, with a number of its own, only if what came is not allowed: the two together are a draw from what is
    allowed, and mostly the first is enough."""
    first = [at for at in drawn if at not in masks or not has_filters(rows[at].params)]
    tokens: dict[int, int | None] = {}
    if first:
        tokens.update(zip(first, draw_many(logits, first, *_numbers(rows, first)), strict=True))
    bound = [at for at in drawn if at in masks and (at not in tokens or not masks[at].allows(tokens[at] or 0))]
    if bound:
        values = logits.numpy()
        for at in bound:
            masks[at].sink(values[at], rows[at].params.temperature)
        matrix, places = sunk_rows([masks[at] for at in bound])
        for at, token in zip(bound, draw_many(matrix, places, *_numbers(rows, bound, tokens)), strict=True):
            # One in 2**53 draws is exactly 0 and takes the first token there is, whatever its weight.
            tokens[at] = token if masks[at].allows(token) else _sample_row(logits[at], rows[at], masks[at])
    return tokens


def _numbers(
    rows: Sequence[SamplingRow], which: Sequence[int], drawn: Mapping[int, int | None] | None = None
) -> tuple[list[SamplingParams], list[float]]:
    """Parameters and random numbers; others for rows that have `drawn` one already."""
    params = [rows[at].params for at in which]
    again = drawn or {}
    places = [rows[at].position + (SECOND_DRAW if at in again else 0) for at in which]
    return params, [uniform(one.seed, place) for one, place in zip(params, places, strict=True)]


def _sample_row(logits: Tensor, row: SamplingRow, mask: TokenMask | None) -> int | None:
    """None when no token is left whose logit is a number."""
    values = logits.numpy().astype(np.float64)
    # What overflows is looked at below; NumPy's warning would come at every step of such a request.
    with np.errstate(over="ignore", invalid="ignore"):
        adjust(values, row.params, _judged_at(row, mask), row.counts)
        if mask is not None:
            values[mask.forbidden()] = -np.inf
        if not np.isfinite(values.max()):
            return None
        if row.params.temperature < GREEDY_BELOW:
            return int(values.argmax())
        return draw(filtered_weights(values, row.params), uniform(row.params.seed, row.position))


def _report(logits: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int | None]) -> list[TokenLogprobs | None]:
    reports: list[TokenLogprobs | None] = [None] * len(rows)
    for at, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        if row.params.logprobs < 0 or token is None:
            continue
        log_probabilities = torch.log_softmax(logits[at], dim=-1)
        top: tuple[tuple[int, float], ...] = ()
        if row.params.logprobs > 0:
            best = torch.topk(log_probabilities, min(row.params.logprobs, log_probabilities.numel()))
            top = best_first(best.indices.tolist(), best.values.tolist())
        reports[at] = TokenLogprobs(float(log_probabilities[token]), top)
    return reports
