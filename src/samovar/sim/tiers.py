"""The tiers below the devices of a simulated engine: the real connector of each rank, unmodified, and a mover that
only knows how long bytes take.

Every device has a host link of its own. The disk is the machine's: its ranks share the bandwidth. A rank keeps in host
memory and on disk what its devices hold, all shards together, as vLLM counts `--kv-offloading-size` over tensor
parallel ranks; KV that each of them holds whole (MLA without DCP) is kept once per device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from samovar.base.errors import ConfigError
from samovar.core.config import EngineConfig
from samovar.core.ports import Connector
from samovar.kv.build import build_tiers
from samovar.kv.settings import TierSettings as Wanted
from samovar.kv.settings import TierSizes, fit
from samovar.kv.tiers import Tuning
from samovar.policy.retention import RetentionPolicy
from samovar.sim.cost.layout import Layout
from samovar.sim.cost.shape import Chunk, StepShape
from samovar.sim.cost.step_cost import StepModel
from samovar.sim.links import Channel
from samovar.sim.links_events import LinkEvents
from samovar.sim.mover import VirtualMover, Ways
from samovar.sim.mover_contents import Contents
from samovar.sim.outcome import LinkTotals
from samovar.sim.seam import RankTiers
from samovar.sim.tiers_shared import RankView, shared_order
from samovar.spec.device import Device
from samovar.spec.link import Link
from samovar.spec.model_shape import ModelShape

SLOT_BYTES = 120
"""What the real index takes for a block of a tier, used or not."""
MANY_SLOTS = 5_000_000
"""Worth a warning."""


@dataclass(frozen=True, slots=True)
class TierSettings:
    """`sim.seam.TierBuilder`. Sizes in `wanted` are of one rank, as each engine gets its own flags."""

    wanted: Wanted
    host: Link
    """Of one device."""
    ssd: Link | None
    """Of a machine; needed when a disk is wanted."""
    block_bytes: float
    """On one device; what its host link carries."""
    kept_bytes: float
    """Of a block in host memory and on disk, for all devices of a rank."""
    ranks_per_machine: int = 8
    compute_block_s: float = 0.02
    """Seconds to compute a block; what an eviction may cost."""
    shared: bool = False
    """One pool for all ranks of a machine: `wanted` is then the machine's."""

    def __post_init__(self) -> None:
        if self.wanted.disk is not None and self.ssd is None:
            raise ConfigError("a disk tier is wanted, and there is no link to a disk")

    def sizes(self, engine: EngineConfig) -> TierSizes:
        """In blocks, of one rank or of all that share, with warnings. Raises ConfigError when a tier holds no block."""
        sharers = self.ranks_per_machine if self.shared else 1
        sizes = fit(self.wanted, self._slot_bytes, engine.num_blocks * sharers)
        slots = sum(sizes.host_blocks) + sizes.disk_blocks
        if slots < MANY_SLOTS:
            return sizes
        told = (
            f"the tiers have {slots:,} blocks: to keep track of them takes about {slots * SLOT_BYTES / 1e9:.1f} GB here"
        )
        return replace(sizes, warnings=(*sizes.warnings, told))

    @property
    def _slot_bytes(self) -> int:
        return max(1, round(self.kept_bytes))

    def _tuning(self) -> Tuning:
        """A connector estimates loads by the bytes it keeps; a guess far below what the links give would decline every
        load, and never measure one. Each device commits shards of its own, so a commit is as many times as large."""
        usual, shards = Tuning(), self.kept_bytes / self.block_bytes
        return replace(
            usual,
            host_bytes_per_s=self.host.in_bytes_per_s * shards,
            disk_bytes_per_s=usual.disk_bytes_per_s if self.ssd is None else self.ssd.in_bytes_per_s,
            batch_bytes=round(usual.batch_bytes * shards),
        )

    def build(self, engine: EngineConfig, policies: Sequence[RetentionPolicy]) -> Tiers:
        """Raises ConfigError."""
        sizes = self.sizes(engine)
        machines: list[LinkEvents] = []
        ranks: list[RankTiers] = []
        for first in range(0, len(policies), self.ranks_per_machine):
            events = LinkEvents()
            mine = policies[first : first + self.ranks_per_machine]
            connectors, contents = self._connectors(sizes, mine)
            name = f"ssd of machine {len(machines)}"
            ssd = events.add(self.ssd, name, "read", "write") if self.ssd and sizes.disk_blocks else None
            for at, connector in enumerate(connectors):
                host = events.add(self.host, f"host link of rank {first + at}")
                ways = Ways(host, self.block_bytes, ssd, self.kept_bytes)
                ranks.append(RankTiers(connector, VirtualMover(events, ways, contents[at])))
            machines.append(events)
        return Tiers(tuple(ranks), sizes, tuple(machines))

    def _connectors(
        self, sizes: TierSizes, policies: Sequence[RetentionPolicy]
    ) -> tuple[Sequence[Connector], Sequence[Contents]]:
        """Of the ranks of one machine."""
        if not self.shared:
            return [self._connector(sizes, policy) for policy in policies], [Contents() for _ in policies]
        connector, contents = self._connector(sizes, shared_order(policies, sum(sizes.host_blocks))), Contents()
        count = len(policies)
        return [RankView(connector, rank, count) for rank in range(count)], [contents] * count

    def _connector(self, sizes: TierSizes, order: RetentionPolicy) -> Connector:
        planned = build_tiers(self.wanted, sizes, order, self._slot_bytes, lambda: self.compute_block_s, self._tuning())
        return planned.connector


@dataclass(frozen=True, slots=True)
class Tiers:
    """`sim.seam.BuiltTiers`."""

    ranks: tuple[RankTiers, ...]
    sizes: TierSizes
    """Of one rank, or of a machine's where they share."""
    machines: tuple[LinkEvents, ...]

    def links(self) -> tuple[LinkTotals, ...]:
        """A host link's bytes are those of one device of its rank."""
        return tuple(_totals(channel, events.now_s) for events in self.machines for channel in events.channels)

    def check(self) -> None:
        """Recompute every invariant but the connectors', that no link carried more than it can among them; raises
        AssertionError."""
        for events in self.machines:
            events.check()
        for rank in self.ranks:
            assert isinstance(rank.mover, VirtualMover)
            rank.mover.check()


def tiers_on(
    device: Device,
    model: ModelShape,
    layout: Layout,
    wanted: Wanted,
    *,
    compute_block_s: float = 0.02,
    replicas: int = 1,
    shared: bool = False,
    keep_once: bool = False,
) -> TierSettings:
    """For a model laid out over such devices. `replicas`: equal engines, this one among them; those on its machine that
    are not simulated get their share of the disk. `keep_once`: KV that several devices of a rank hold whole is kept
    once for all of them, where ours keeps what each one holds. Raises ConfigError for links that the device's file does
    not give."""
    kv, block_tokens = layout.kv(model), model.block_tokens * layout.dcp
    of_device = model.kv_bytes_per_token(kv, layout.tp, layout.dcp) * block_tokens
    engines = max(1, device.devices_per_machine // layout.devices)
    return TierSettings(
        wanted,
        host=device.link("host"),
        ssd=_shared(device.link("ssd"), min(replicas, engines)) if wanted.disk is not None else None,
        block_bytes=of_device,
        kept_bytes=model.kv_bytes_per_token(kv) * block_tokens if keep_once else of_device * layout.tp,
        ranks_per_machine=ranks_per_machine(device, layout),
        compute_block_s=compute_block_s,
        shared=shared,
    )


def ranks_per_machine(device: Device, layout: Layout) -> int:
    """A rank that needs more than a machine has one to itself."""
    return max(1, device.devices_per_machine // layout.tp)


def _shared(link: Link, sharers: int) -> Link:
    return replace(link, in_bytes_per_s=link.in_bytes_per_s / sharers, out_bytes_per_s=link.out_bytes_per_s / sharers)


def compute_block_s(steps: StepModel, ranks: int, engine: EngineConfig) -> float:
    """Of a block of a prompt that fills steps, at its beginning."""
    tokens = engine.max_num_batched_tokens
    shape = StepShape(chunks=(Chunk(tokens),))
    step_s = steps.step_s([shape] + [StepShape()] * (ranks - 1)).total_s
    return step_s * engine.block_tokens / tokens


def _totals(channel: Channel, now: float) -> LinkTotals:
    return LinkTotals(channel.name, channel.moved_bytes(now), channel.busy_s, channel.bytes_per_s, now)
