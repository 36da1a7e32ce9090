"""Sampling parameters as the engine sees them: already validated, with every default resolved by the front end."""

from __future__ import annotations

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, array_like=True):
    """How one request's tokens are chosen. The core reads the first four; the rest is the runner's.

    The random number for the token at output position p is a function of (seed, p) alone, so a request gives the
    same tokens whatever else is in the batch, and again after a preemption.
    """

    max_tokens: int
    """Output tokens at most, >= 1; the front end has already clamped it to the context."""
    min_tokens: int = 0
    """No token of `stop_token_ids` is sampled before this many output tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the output (the checkpoint's EOS among them unless the client ignores it)."""
    seed: int = 0
    """0 <= seed < 2**63; the front end draws one when the client gives none."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """0 < top_p <= 1."""
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Over prompt and output, as in transformers and vLLM."""
    presence_penalty: float = 0.0
    """Over the output only, as in the OpenAI API."""
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int = -1
    """-1: none; k >= 0: the chosen token's log probability and the k most likely ones."""
    grammar: str = ""
    """What the output must be, as text that the runner compiles; "" for anything."""
