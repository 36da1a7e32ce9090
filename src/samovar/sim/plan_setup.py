"""One configuration of an engine on hardware one may not have, by its flags, and the simulator's settings for it.

`Hardware` is what does not change while configurations are compared; a `Setup` is what does. Both are plain values:
they can be compared, and sent to another process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import math

from samovar.base.errors import ConfigError
from samovar.core.config import EngineConfig
from samovar.kv.settings import TierSettings, TierSizes
from samovar.policy.retention import RetentionPolicy
from samovar.runner.retention import make_policy
from samovar.sim.cost.capacity import Memory, capacity_tokens
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.roofline import CostModel
from samovar.sim.cost.step_cost import StepModel
from samovar.sim.cost.step_table import MeasuredModel, StepTable
from samovar.sim.seam import TierBuilder
from samovar.sim.settings import Acceptance, BalancerName, FrontEnd, SimSettings
from samovar.sim.tiers import compute_block_s, ranks_per_machine, tiers_on
from samovar.spec.device import Device
from samovar.spec.model_shape import ModelShape
from samovar.workload.replay import ReplayConfig


@dataclass(frozen=True, slots=True)
class Hardware:
    model: ModelShape
    device: Device
    gpus: int
    measured: StepTable | None = None
    """Steps measured on it, in place of the cost model."""

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ConfigError(f"--gpus is {self.gpus}; it must be at least 1", param="gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Fields carry the engine's flag names."""

    layout: Layout
    max_model_len: int
    max_num_seqs: int = 256
    """Of one rank, as with a data-parallel engine."""
    max_num_batched_tokens: int = 8192
    prefill_schedule_interval: int = 1
    long_prefill_token_threshold: int = 0
    gpu_memory_utilization: float = 0.9
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool = True
    acceptance: Acceptance = field(default_factory=Acceptance)
    retention_policy: str = "agent"
    retention_ttl_s: float | None = None
    tiers: TierSettings | None = None
    """Sizes are of all devices together, so that layouts can be compared; each engine's flags say its share."""
    shared_tiers: bool = False
    """The ranks of an engine that are on one machine have one pool instead of one each."""
    balancer: BalancerName = "sticky"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a configuration is put under load."""

    replay: ReplayConfig
    """Its concurrency counts the lanes of all replicas together."""
    duration_s: float
    grace_s: float = 30.0
    front_end: FrontEnd = field(default_factory=FrontEnd)
    stats_delay_s: float = 0.1

    def __post_init__(self) -> None:
        if not self.duration_s >= 1:
            raise ConfigError(f"--duration is {self.duration_s:g} s; it must be at least 1")
        if not self.grace_s >= 0:
            raise ConfigError(f"--grace is {self.grace_s:g} s; it must be at least 0")


def num_replicas(hardware: Hardware, layout: Layout) -> int:
    """Engines of this layout that share out devices and sessions, and nothing else. Raises ConfigError when some
    devices would be left."""
    if hardware.gpus % layout.devices:
        raise ConfigError(
            f"--gpus is {hardware.gpus}; it must be a multiple of --tensor-parallel-size x --data-parallel-size, "
            f"{layout.tp} x {layout.dp}",
            param="gpus",
        )
    return hardware.gpus // layout.devices


def kv_tokens(hardware: Hardware, setup: Setup) -> int:
    """Tokens of KV that one rank keeps, given or worked out. Raises ConfigError when it has room for none."""
    setup.layout.check(hardware.model)
    if setup.num_gpu_blocks_override is not None:
        if setup.num_gpu_blocks_override < 1:
            raise ConfigError(f"--num-gpu-blocks-override is {setup.num_gpu_blocks_override}; it must be at least 1")
        return setup.num_gpu_blocks_override * block_tokens(hardware, setup.layout)
    memory = Memory(
        gpu_memory_utilization=setup.gpu_memory_utilization,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        max_num_seqs=setup.max_num_seqs,
        drafts=setup.acceptance.drafts > 0,
    )
    return capacity_tokens(hardware.model, hardware.device, setup.layout, memory)


def block_tokens(hardware: Hardware, layout: Layout) -> int:
    return hardware.model.block_tokens * layout.dcp


def engine_config(hardware: Hardware, setup: Setup) -> EngineConfig:
    """Of one rank. Raises ConfigError for what does not fit, or has no effect."""
    tokens = kv_tokens(hardware, setup)
    if tokens < setup.max_model_len:
        raise ConfigError(
            f"a request of {setup.max_model_len:,} tokens does not fit: one rank keeps the KV of {tokens:,} "
            f"(tp {setup.layout.tp}, dp {setup.layout.dp}, dcp {setup.layout.dcp})",
            param="max_model_len",
        )
    drafts = setup.acceptance.drafts
    if drafts and hardware.model.draft is None and hardware.measured is None:
        raise ConfigError(
            f"--num-speculative-tokens is {drafts}, but {hardware.model.name} has no draft layer",
            param="num_speculative_tokens",
        )
    size = block_tokens(hardware, setup.layout)
    return EngineConfig(
        num_blocks=tokens // size,
        block_tokens=size,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        max_model_len=setup.max_model_len,
        # With drafts the next position is known only with the result, so nothing is planned ahead.
        depth=1 if drafts else 2,
        long_prefill_token_threshold=setup.long_prefill_token_threshold,
        prefill_schedule_interval=setup.prefill_schedule_interval,
        enable_prefix_caching=setup.enable_prefix_caching,
        num_speculative_tokens=drafts,
        block_bytes=round(block_bytes(hardware, setup)),
    )


def block_bytes(hardware: Hardware, setup: Setup) -> float:
    """Of one block on one device."""
    layout, model = setup.layout, hardware.model
    of_token = model.kv_bytes_per_token(layout.kv(model), layout.tp, layout.dcp)
    return of_token * block_tokens(hardware, layout)


def num_pools(hardware: Hardware, layout: Layout, shared: bool) -> int:
    """Tiers of their own: one per rank, or per engine and machine."""
    of_engine = math.ceil(layout.dp / ranks_per_machine(hardware.device, layout)) if shared else layout.dp
    return num_replicas(hardware, layout) * of_engine


def tiers_of_pool(hardware: Hardware, setup: Setup) -> TierSettings | None:
    """Each pool's equal share of the tiers. Raises ConfigError when that is nothing."""
    if setup.tiers is None:
        return None
    return scaled_tiers(setup.tiers, 1 / num_pools(hardware, setup.layout, setup.shared_tiers))


def scaled_tiers(tiers: TierSettings, factor: float) -> TierSettings:
    hosts = tuple(
        replace(
            host,
            num_bytes=None if host.num_bytes is None else int(host.num_bytes * factor),
            num_blocks=None if host.num_blocks is None else int(host.num_blocks * factor),
        )
        for host in tiers.hosts
    )
    disk = tiers.disk
    if disk is not None:
        rate = disk.write_bytes_per_s
        disk = replace(
            disk,
            num_bytes=int(disk.num_bytes * factor),
            write_bytes_per_s=None if rate is None else int(rate * factor),
        )
    return replace(tiers, hosts=hosts, disk=disk)


def lanes_of(hardware: Hardware, setup: Setup, concurrency: int) -> int:
    """Of one replica. Raises ConfigError when they cannot be shared out evenly."""
    replicas = num_replicas(hardware, setup.layout)
    if concurrency % replicas:
        raise ConfigError(
            f"--concurrency {concurrency}: {replicas} engines (tp {setup.layout.tp}, dp {setup.layout.dp} each) on "
            f"{hardware.gpus} devices cannot share it evenly",
            param="concurrency",
        )
    return concurrency // replicas


def sim_settings(hardware: Hardware, setup: Setup, rules: Rules) -> SimSettings:
    """Of all engines on the hardware, under the whole load. Raises ConfigError."""
    lanes_of(hardware, setup, rules.replay.concurrency)
    layout = setup.layout

    def policy(config: EngineConfig) -> RetentionPolicy:
        return make_policy(setup.retention_policy, config.num_blocks, setup.retention_ttl_s)

    steps, engine = _steps(hardware, layout), engine_config(hardware, setup)
    return SimSettings(
        steps=steps,
        engine=engine,
        replay=rules.replay,
        duration_s=rules.duration_s,
        grace_s=rules.grace_s,
        policy=policy,
        ranks=layout.dp,
        engines=num_replicas(hardware, layout),
        tiers=_tiers(hardware, setup, steps, engine),
        balancer=setup.balancer,
        stats_delay_s=rules.stats_delay_s,
        front_end=rules.front_end,
        acceptance=setup.acceptance,
        seed=rules.replay.seed,
    )


def tier_sizes(hardware: Hardware, setup: Setup) -> TierSizes | None:
    """Of one pool, with warnings; None without tiers. Raises ConfigError."""
    wanted = tiers_of_pool(hardware, setup)
    if wanted is None:
        return None
    tiers = tiers_on(hardware.device, hardware.model, setup.layout, wanted, shared=setup.shared_tiers)
    return tiers.sizes(engine_config(hardware, setup))


def _tiers(hardware: Hardware, setup: Setup, steps: StepModel, engine: EngineConfig) -> TierBuilder | None:
    wanted, layout = tiers_of_pool(hardware, setup), setup.layout
    if wanted is None:
        return None
    return tiers_on(
        hardware.device,
        hardware.model,
        layout,
        wanted,
        compute_block_s=compute_block_s(steps, layout.dp, engine),
        replicas=num_replicas(hardware, layout),
        shared=setup.shared_tiers,
    )


def _steps(hardware: Hardware, layout: Layout) -> StepModel:
    if hardware.measured is not None:
        return MeasuredModel(hardware.measured, layout.dp)
    return CostModel(hardware.model, hardware.device, layout)
