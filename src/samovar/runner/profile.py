"""Measures how fast this machine prefills, to choose a step size that keeps decoding requests from waiting long."""

from __future__ import annotations

import time

import numpy as np
import torch

from samovar.kernels.rows import make_rows
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import Model

STEP_TARGET_S = 0.2
MIXED_STEP_TARGET_S = 0.05
"""Of a step in which others decode: this is how long their tokens wait while a prompt is computed."""
SMALLEST_STEP_TOKENS = 64
LARGEST_STEP_TOKENS = 8192
_PROBE_TOKENS = (64, 256)
LONGEST_PROBE_TOKENS = max(_PROBE_TOKENS)
_REPEATS = 3


def measure_prefill_rate(model: Model, scratch: KVCache) -> float:
    """Prompt tokens per second of one request without context, the fastest of three runs after a warm-up:
    other work on the machine only ever makes a run slower, and would make every later step too small.

    Overwrites the scratch cache, which must hold at least 64 tokens. The longer probe runs only where the shorter one
    is fast: it is the better estimate there, and elsewhere it would hold up the start.
    """
    rate = 0.0
    for num_tokens in _PROBE_TOKENS:
        if num_tokens > len(scratch.keys[0]) * scratch.block_tokens:
            break
        if rate and num_tokens / rate > 2 * STEP_TARGET_S:
            break
        rate = _rate(model, scratch, num_tokens)
    assert rate > 0, "the scratch cache is smaller than the shortest probe"
    return rate


def _rate(model: Model, scratch: KVCache, num_tokens: int) -> float:
    batch = _probe(num_tokens, scratch.block_tokens)
    seconds: list[float] = []
    with torch.inference_mode():
        for _ in range(1 + _REPEATS):
            begin = time.perf_counter()
            model.forward(batch, scratch)
            seconds.append(time.perf_counter() - begin)
    return num_tokens / max(min(seconds[1:]), 1e-9)


def _probe(num_tokens: int, block_tokens: int) -> ForwardBatch:
    blocks = np.arange(-(-num_tokens // block_tokens), dtype=np.int64)
    everything = torch.arange(num_tokens, dtype=torch.int64)
    return ForwardBatch(
        token_ids=torch.zeros(num_tokens, dtype=torch.int64),
        positions=everything,
        slots=everything,
        rows=make_rows([num_tokens], [0], [blocks], block_tokens),
        logit_rows=torch.tensor([num_tokens - 1], dtype=torch.int64),
    )


def probe_blocks(block_tokens: int) -> int:
    """Blocks a scratch cache needs for the longest probe."""
    return -(-LONGEST_PROBE_TOKENS // block_tokens)


def step_tokens(prefill_tokens_per_s: float, block_tokens: int, target_s: float = STEP_TARGET_S) -> int:
    """The largest step that stays under `target_s` at this rate: whole blocks, at least 64 and at most 8192 tokens
    (or one block, where a block is larger)."""
    blocks = int(min(prefill_tokens_per_s * target_s, LARGEST_STEP_TOKENS)) // block_tokens
    return max(blocks, -(-SMALLEST_STEP_TOKENS // block_tokens)) * block_tokens
