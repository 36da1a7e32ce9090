"""From a step's logits to tokens and their log probabilities.

The order is vLLM's (v1/sample/sampler.py): log probabilities of the raw logits for reporting; logit_bias and the
min_tokens mask; repetition, frequency, presence penalties; then greedy argmax, or temperature, min_p, top_k, top_p
and a draw. A row's token is a function of its own logits, parameters and position alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from samovar.base.errors import StepFailed
from samovar.base.ids import RequestId
from samovar.core.plan import TokenLogprobs
from samovar.core.sampling import SamplingParams
from samovar.runner.chance import uniform
from samovar.runner.filters import PenaltyCounts, adjust, best_first, changes_logits, draw, filtered_weights

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy, as in vLLM: dividing by them would only lose the logits' precision."""


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """Whose token a row of logits becomes. `position` counts output tokens from 0; `counts` are there for penalties."""

    request_id: RequestId
    params: SamplingParams
    position: int
    counts: PenaltyCounts | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token per row; `logprobs[i]` is None for a row that asked for none."""

    tokens: list[int]
    logprobs: list[TokenLogprobs | None]


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> Sampled:
    """logits [S, V] float32, read only; S rows. Raises StepFailed when a row has no usable number to choose by."""
    _refuse_non_finite(logits, rows)
    tokens = [-1] * len(rows)
    plain: list[int] = []
    for at, row in enumerate(rows):
        if row.params.temperature < GREEDY_BELOW and not changes_logits(row.params, row.position):
            plain.append(at)
        else:
            tokens[at] = _sample_row(logits[at], row)
    if plain:
        # argmax gives the first of equal maxima, so the lowest id.
        chosen = (logits if len(plain) == len(rows) else logits[plain]).argmax(dim=-1).tolist()
        for at, token in zip(plain, chosen, strict=True):
            tokens[at] = token
    return Sampled(tokens, _report(logits, rows, tokens))


def _sample_row(logits: Tensor, row: SamplingRow) -> int:
    values = logits.numpy().astype(np.float64)
    adjust(values, row.params, row.position, row.counts)
    if not np.isfinite(values.max()):
        raise StepFailed(f"request {row.request_id}: bias and masks leave no token that could be sampled")
    if row.params.temperature < GREEDY_BELOW:
        return int(values.argmax())
    return draw(filtered_weights(values, row.params), uniform(row.params.seed, row.position))


def _refuse_non_finite(logits: Tensor, rows: Sequence[SamplingRow]) -> None:
    # A sum is finite only if every term is: one pass over the row and no temporary as large as the logits.
    sound = torch.isfinite(logits.sum(dim=-1))
    if not bool(sound.all()):
        bad = [row.request_id for row, ok in zip(rows, sound.tolist(), strict=True) if not ok]
        raise StepFailed(f"the model gave logits that are not finite for request(s) {', '.join(map(str, bad))}")


def _report(logits: Tensor, rows: Sequence[SamplingRow], tokens: Sequence[int]) -> list[TokenLogprobs | None]:
    reports: list[TokenLogprobs | None] = [None] * len(rows)
    for at, row in enumerate(rows):
        if row.params.logprobs < 0:
            continue
        log_probabilities = torch.log_softmax(logits[at], dim=-1)
        top: tuple[tuple[int, float], ...] = ()
        if row.params.logprobs > 0:
            best = torch.topk(log_probabilities, min(row.params.logprobs, log_probabilities.numel()))
            top = best_first(best.indices.tolist(), best.values.tolist())
        reports[at] = TokenLogprobs(float(log_probabilities[tokens[at]]), top)
    return reports
