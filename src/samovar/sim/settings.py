"""What to simulate: an engine, the load, and what lies around them. Units are in the names; all "auto" is resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from samovar.base.errors import ConfigError
from samovar.core.config import EngineConfig
from samovar.policy.retention import RetentionPolicy
from samovar.sim.cost.step_cost import StepModel
from samovar.sim.seam import TierBuilder
from samovar.workload.replay import ReplayConfig

BalancerName = Literal["sticky", "hash", "least-loaded", "round-robin"]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Speculative decoding as a number."""

    drafts: int = 0
    """Tokens drafted for each decoding request in each step."""
    mean_tokens: float = 1.0
    """Tokens a decoding request gets per step, the sampled one included."""

    def __post_init__(self) -> None:
        if self.drafts < 0:
            raise ConfigError(f"drafts is {self.drafts}; it must be at least 0", param="drafts")
        if not 1.0 <= self.mean_tokens <= 1 + self.drafts:
            most = 1 + self.drafts
            raise ConfigError(
                f"mean_tokens is {self.mean_tokens:g}; with {self.drafts} drafts it must be from 1 to {most}",
                param="mean_tokens",
            )


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Time outside the steps: API, tokenising, detokenising. Requests do not wait for each other there."""

    request_s: float = 0.0
    prompt_token_s: float = 0.0
    output_token_s: float = 0.0
    """Of each token, from the end of its step until the client has it."""

    def __post_init__(self) -> None:
        for name in ("request_s", "prompt_token_s", "output_token_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name):g}; it must be at least 0", param=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """One point: equal engines under one load. They share the sessions and nothing else."""

    steps: StepModel
    engine: EngineConfig
    """Of one rank. `block_tokens`: the model's block times the DCP degree. With drafts: depth 1, and as many
    `num_speculative_tokens`."""
    replay: ReplayConfig
    duration_s: float
    """Of the measured part; the warm-up comes before it."""
    policy: Callable[[EngineConfig], RetentionPolicy]
    """Makes a new one; called once per rank."""
    ranks: int = 1
    """Engine cores of an engine, in lockstep (the DP degree). 1 runs alone, by its own cadence."""
    engines: int = 1
    """Side by side. Engine i has the lanes i, i + engines, ..., and whatever sessions they come to."""
    grace_s: float = 30.0
    """Requests still running after `duration_s` get this long."""
    tiers: TierBuilder | None = None
    """Of each engine."""
    balancer: BalancerName = "sticky"
    """Which rank of its engine a request goes to.

    - "sticky": all turns of an agent go to its rank; its sub-agents go there too unless that rank is full. A session
      begins where fewest sessions are.
    - "hash": each agent by a hash of its session, whatever the loads: consistent hashing, as routers do it.
    - "least-loaded": by what each rank had waiting and running, as known `stats_delay_s` ago.
    - "round-robin": in turn.
    """
    stats_delay_s: float = 0.1
    servers: int = 1
    """Servers in front of the ranks, each of which balances what comes to it: requests go to them at random, and none
    knows what the others sent before the ranks tell."""
    front_end: FrontEnd = FrontEnd()
    acceptance: Acceptance = Acceptance()
    seed: int = 0
    fast_forward: bool = True
    """Steps that differ in nothing but positions are taken together. Changes no figure; off only to show that."""
    capacity_guard: bool = True
    """False: the prefill cadence without its guard, which only comparisons want."""

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ConfigError(f"ranks is {self.ranks}; it must be at least 1", param="ranks")
        if self.engines < 1:
            raise ConfigError(f"engines is {self.engines}; it must be at least 1", param="engines")
        if self.servers < 1:
            raise ConfigError(f"servers is {self.servers}; it must be at least 1", param="servers")
        if not self.duration_s > 0:
            raise ConfigError(f"duration_s is {self.duration_s:g}; it must be more than 0", param="duration_s")
        for name in ("grace_s", "stats_delay_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name):g}; it must be at least 0", param=name)
        drafts, verified = self.acceptance.drafts, self.engine.num_speculative_tokens
        if drafts != verified:
            raise ConfigError(
                f"acceptance.drafts is {drafts} and the engine's num_speculative_tokens {verified}; they must be equal",
                param="acceptance",
            )
