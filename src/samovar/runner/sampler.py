"""From a step's logits to tokens and their log probabilities.

The order is vLLM's (v1/sample/sampler.py): log probabilities of the raw logits for reporting; logit_bias and the
min_tokens mask; repetition, frequency, presence penalties; then greedy argmax, or temperature, min_p, top_k, top_p
and a draw. A row's token is a function of its own logits, parameters and position alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from samovar.base.ids import RequestId
from samovar.core.plan import TokenLogprobs
from samovar.core.sampling import SamplingParams
from samovar.runner.chance import uniform
from samovar.runner.filters import PenaltyCounts, adjust, best_first, changes_logits, draw, filtered_weights

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy, as in vLLM: dividing by them would only lose the logits' precision."""


Best = Callable[[Tensor], tuple[list[int], list[bool]]]
"""logits [S, V] -> per row the lowest of its best tokens, and whether every logit is finite."""
DrawMany = Callable[[Tensor, list[int], list[SamplingParams], list[float]], list[int]]
"""(logits [S, V], rows, their parameters, a number in [0, 1) for each) -> their tokens, by the rules of `filters`."""


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """Whose token a row of logits becomes. `position` counts output tokens from 0; `counts` are there for penalties."""

    request_id: RequestId
    params: SamplingParams
    position: int
    counts: PenaltyCounts | None = None


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
    logits: Tensor, rows: Sequence[SamplingRow], best: Best = best_of, draw_many: DrawMany | None = None
) -> Sampled:
    """logits [S, V] float32, read only; S rows. A row without a usable number to choose by is that row's fault alone:
    no request can make another's fail. `draw_many` takes the rows whose logits nothing changes first; without it, and
    for the others, NumPy draws row by row."""
    tokens: list[int | None] = [None] * len(rows)
    faults: dict[int, str] = {}
    drawn: list[int] = []
    chosen, finite = best(logits) if rows else ([], [])
    for at, (row, sound) in enumerate(zip(rows, finite, strict=True)):
        if not sound:
            faults[at] = "the model gave logits that are not finite"
        elif row.params.temperature < GREEDY_BELOW and not changes_logits(row.params, row.position):
            tokens[at] = chosen[at]
        elif draw_many is not None and not changes_logits(row.params, row.position):
            drawn.append(at)
        else:
            tokens[at] = _sample_row(logits[at], row)
            if tokens[at] is None:
                faults[at] = "penalties, bias and masks leave no token that could be sampled"
    if drawn and draw_many is not None:
        params = [rows[at].params for at in drawn]
        numbers = [uniform(rows[at].params.seed, rows[at].position) for at in drawn]
        for at, token in zip(drawn, draw_many(logits, drawn, params, numbers), strict=True):
            tokens[at] = token
    return Sampled(tokens, _report(logits, rows, tokens), faults)


def _sample_row(logits: Tensor, row: SamplingRow) -> int | None:
    """None when no token is left whose logit is a number."""
    values = logits.numpy().astype(np.float64)
    # What overflows is looked at below; NumPy's warning would come at every step of such a request.
    with np.errstate(over="ignore", invalid="ignore"):
        adjust(values, row.params, row.position, row.counts)
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
