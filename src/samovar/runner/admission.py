"""Refuses requests whose numbers no model could work with: ids outside the vocabulary, parameters outside their range.

The front end validates what clients send; this is the engine process's own door, since one bad id would fail the
step of everybody in it.
"""

from __future__ import annotations

import math

import numpy as np

from samovar.base.errors import InvalidField, RequestError
from samovar.base.keys import TOKEN_BYTES
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams

MIN_REPETITION_PENALTY = 0.01
"""Logits are divided by it: far below, they overflow."""


def refusal(request: Request, vocab_size: int) -> RequestError | None:
    """What is wrong with a request, or None."""
    data = request.token_ids
    if not data or len(data) % TOKEN_BYTES:
        return InvalidField(
            f"prompt: {len(data)} bytes are no sequence of at least one 4-byte token id", param="prompt"
        )
    # A view: this runs between two steps, and a long prompt as a list would take as long as some steps do.
    token_ids = np.frombuffer(data, dtype="<i4")
    for token in (int(token_ids.min()), int(token_ids.max())):
        if not 0 <= token < vocab_size:
            return InvalidField(
                f"prompt: token id {token} is outside the vocabulary of {vocab_size} tokens", param="prompt"
            )
    return _sampling_refusal(request.sampling, vocab_size)


def _sampling_refusal(params: SamplingParams, vocab_size: int) -> RequestError | None:
    for token in params.stop_token_ids:
        if not 0 <= token < vocab_size:
            return InvalidField(
                f"stop_token_ids: token id {token} is outside the vocabulary of {vocab_size} tokens",
                param="stop_token_ids",
            )
    if params.min_tokens > 0 and len(set(params.stop_token_ids)) >= vocab_size:
        return InvalidField(
            f"stop_token_ids: with min_tokens {params.min_tokens} they leave no token to begin with: they are all "
            f"{vocab_size} of the vocabulary",
            param="stop_token_ids",
        )
    for token, bias in params.logit_bias:
        if not 0 <= token < vocab_size or not math.isfinite(bias):
            return InvalidField(
                f"logit_bias: {bias} for token id {token}: the bias must be finite and the id below {vocab_size}",
                param="logit_bias",
            )
    limits: tuple[tuple[str, float, bool, str], ...] = (
        ("temperature", params.temperature, params.temperature >= 0, "at least 0"),
        ("top_p", params.top_p, 0 < params.top_p <= 1, "above 0 and at most 1"),
        ("top_k", params.top_k, params.top_k >= 0, "at least 0"),
        ("min_p", params.min_p, 0 <= params.min_p <= 1, "from 0 to 1"),
        (
            "repetition_penalty",
            params.repetition_penalty,
            params.repetition_penalty >= MIN_REPETITION_PENALTY,
            f"at least {MIN_REPETITION_PENALTY}",
        ),
        ("presence_penalty", params.presence_penalty, True, "finite"),
        ("frequency_penalty", params.frequency_penalty, True, "finite"),
    )
    for name, value, holds, limit in limits:
        if not (holds and math.isfinite(value)):
            return InvalidField(f"{name}: {value} must be {limit}", param=name)
    return None
