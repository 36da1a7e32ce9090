"""The retention policy that a configuration or a call log names. Torch-free."""

from __future__ import annotations

from samovar.core.calls import LogHeader
from samovar.policy.choose import choose
from samovar.policy.retention import RetentionPolicy
from samovar.policy.ttl import TTL


def make_policy(name: str, capacity_blocks: int, ttl_s: float | None = None) -> RetentionPolicy:
    """`capacity_blocks` of the device. `ttl_s`: of policy "ttl". Raises ConfigError."""
    return TTL(ttl_s) if name == "ttl" and ttl_s is not None else choose(name, capacity_blocks)


def policy_of(header: LogHeader) -> RetentionPolicy:
    """A fresh one, as the core had that wrote the log. Raises ConfigError when it is not installed here."""
    return make_policy(header.policy, header.config.num_blocks, header.retention_ttl_s)
