"""Settings of the core, every "auto" already resolved."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Fields carry vLLM's flag names where vLLM has the flag. Raises `ConfigError` for what cannot work."""

    num_blocks: int
    block_tokens: int = 16
    """Tokens a block covers (`--block-size` times the DCP degree)."""
    max_num_seqs: int = 256
    """Requests on the device at once, prefilling, decoding or loading."""
    max_num_batched_tokens: int = 2048
    """Token budget of a step."""
    max_num_mixed_prefill_tokens: int = 0
    """Prefill tokens, of all requests, in a step that also decodes: they are what the decoding ones wait for. 0 is no
    limit but the budget."""
    max_model_len: int = 8192
    depth: int = 2
    """Plans in flight: 1 plain, 2 to plan a step while the one before it runs."""
    long_prefill_token_threshold: int = 0
    """Prefill tokens per request and step while another request could run; 0 is no limit."""
    prefill_schedule_interval: int = 1
    """Prefill in every Nth step only; 1 is off."""
    prefill_capacity_guard: bool = True
    """False: a queue that a releasing step cannot drain is throttled all the same. Only to show what the guard does."""
    max_num_queued_reqs: int = 0
    """Waiting requests at most; 0 is no limit."""
    max_num_queued_tokens: int = 0
    """Uncached prompt tokens of waiting requests at most; 0 is no limit."""
    max_num_queued_reqs_per_tenant: int = 0
    """The same for the requests of one tenant."""
    max_num_queued_tokens_per_tenant: int = 0
    enable_prefix_caching: bool = True
    kv_verify: int = 0
    """One load in so many is computed again and compared; 0: none."""
    block_bytes: int = 0
    """Of one block on the device, for reports alone; 0 when not known."""
    num_speculative_tokens: int = 0
    """Draft tokens a runner may verify per decode; needs depth 1: the next start is known only with the result."""
    max_retained_share: float = 0.8
    """Of the blocks of the largest tier, what `retain` hints of one tenant may cover together."""
    max_passed_over: int = 32
    """Admissions of later requests that one without room puts up with before it reserves."""
    max_step_failures: int = 2
    """Failed steps a request may be part of before it ends with an error."""

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_tokens", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}", param=name)
        for name in (
            "max_num_mixed_prefill_tokens",
            "long_prefill_token_threshold",
            "max_num_queued_reqs",
            "max_num_queued_tokens",
            "max_num_queued_reqs_per_tenant",
            "max_num_queued_tokens_per_tenant",
        ):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}", param=name)
        if self.depth not in (1, 2):
            raise ConfigError(f"depth must be 1 or 2, got {self.depth}", param="depth")
        if self.prefill_schedule_interval < 1:
            raise ConfigError(
                f"prefill_schedule_interval must be at least 1, got {self.prefill_schedule_interval}",
                param="prefill_schedule_interval",
            )
        if self.num_speculative_tokens < 0 or (self.num_speculative_tokens and self.depth != 1):
            raise ConfigError("speculative decoding needs depth 1", param="num_speculative_tokens")
        if self.num_blocks * self.block_tokens < self.max_model_len:
            raise ConfigError(
                f"max_model_len {self.max_model_len} does not fit the cache: {self.num_blocks} blocks of "
                f"{self.block_tokens} tokens hold {self.num_blocks * self.block_tokens}",
                param="max_model_len",
            )
        refuse_without_effect(
            self.max_num_seqs,
            self.max_num_batched_tokens,
            self.long_prefill_token_threshold,
            self.prefill_schedule_interval,
        )
        refuse_wide_shares(
            ("max_num_queued_reqs", self.max_num_queued_reqs, self.max_num_queued_reqs_per_tenant),
            ("max_num_queued_tokens", self.max_num_queued_tokens, self.max_num_queued_tokens_per_tenant),
        )
        if self.num_speculative_tokens and self.max_num_batched_tokens <= self.num_speculative_tokens:
            raise ConfigError(
                "max_num_batched_tokens must exceed num_speculative_tokens", param="max_num_batched_tokens"
            )


def refuse_without_effect(
    max_num_seqs: int,
    max_num_batched_tokens: int | None,
    long_prefill_token_threshold: int,
    prefill_schedule_interval: int,
) -> None:
    """Raises ConfigError for settings that would do nothing together; `max_num_batched_tokens` None: not known yet."""
    if max_num_batched_tokens is not None and long_prefill_token_threshold >= max_num_batched_tokens:
        raise ConfigError(
            f"long_prefill_token_threshold {long_prefill_token_threshold} has no effect with max_num_batched_tokens "
            f"{max_num_batched_tokens}: no chunk can be longer than the budget",
            param="long_prefill_token_threshold",
        )
    if max_num_seqs > 1:
        return
    for name, value, off in (
        ("prefill_schedule_interval", prefill_schedule_interval, 1),
        ("long_prefill_token_threshold", long_prefill_token_threshold, 0),
    ):
        if value > off:
            raise ConfigError(
                f"{name} {value} has no effect with max_num_seqs 1: it protects requests that run beside a prefill",
                param=name,
            )


def refuse_wide_shares(*limits: tuple[str, int, int]) -> None:
    """Raises ConfigError for a tenant's share that is wider than the limit for all: (name, limit for all, share)."""
    for name, limit, share in limits:
        if limit and share > limit:
            raise ConfigError(
                f"{name}_per_tenant {share} has no effect with {name} {limit}: all tenants together have less",
                param=f"{name}_per_tenant",
            )
