"""How many tokens a step takes, corrected upwards by what real steps show.

The budget is chosen before the first request, from a prefill rate measured then. Whatever else the machine did at that
moment made the rate too low, and would make every step too small for good. So steps that only prefill are watched: once
several in a row were much faster than what the budget stands for, it grows to what they show. No request waits for
that, and nothing is run for it.

It never shrinks: a step that is slow now may be so for reasons that pass, and what is too long by them passes too.
"""

from __future__ import annotations

from dataclasses import replace

from samovar.core.config import EngineConfig

SMALLEST_STEP_TOKENS = 64
LARGEST_STEP_TOKENS = 8192
FASTER = 1.25
"""So much faster than the budget's rate a step has to be to count against it."""
IN_A_ROW = 3


def step_tokens(prefill_tokens_per_s: float, block_tokens: int, target_s: float) -> int:
    """The largest step that stays under `target_s` at this rate: whole blocks, at least 64 and at most 8192 tokens
    (or one block, where a block is larger)."""
    blocks = int(min(prefill_tokens_per_s * target_s, LARGEST_STEP_TOKENS)) // block_tokens
    return max(blocks, -(-SMALLEST_STEP_TOKENS // block_tokens)) * block_tokens


class StepBudget:
    """Watches the steps of one engine."""

    __slots__ = ("_rates",)

    def __init__(self) -> None:
        self._rates: list[float] = []
        """Of the last steps in a row that were faster."""

    def after(
        self, config: EngineConfig, num_prefill_tokens: int, num_decodes: int, seconds: float
    ) -> EngineConfig | None:
        """A step ended well. Returns the settings to go on with where the budget grows."""
        if num_decodes or num_prefill_tokens < SMALLEST_STEP_TOKENS or seconds <= 0.0:
            return None
        stands_for = _rate_of(config)
        rate = num_prefill_tokens / seconds
        if stands_for <= 0.0 or rate < FASTER * stands_for:
            self._rates.clear()
            return None
        self._rates.append(rate)
        if len(self._rates) < IN_A_ROW:
            return None
        grown = _grown(config, min(self._rates))
        self._rates.clear()
        return grown if grown != config else None


def _rate_of(config: EngineConfig) -> float:
    """Prefill tokens per second that the budget was chosen for; 0.0: it is nobody's estimate, so it stays."""
    if config.step_target_s:
        return config.max_num_batched_tokens / config.step_target_s
    return config.max_num_mixed_prefill_tokens / config.mixed_step_target_s if config.mixed_step_target_s else 0.0


def _grown(config: EngineConfig, rate: float) -> EngineConfig:
    """What was given, and not measured, stays as it is."""
    most, mixed = config.max_num_batched_tokens, config.max_num_mixed_prefill_tokens
    if config.step_target_s:
        most = max(most, step_tokens(rate, config.block_tokens, config.step_target_s))
    if config.mixed_step_target_s:
        mixed = max(mixed, step_tokens(rate, config.block_tokens, config.mixed_step_target_s))
    return replace(config, max_num_batched_tokens=most, max_num_mixed_prefill_tokens=mixed)
