"""The scheduler's half of the tiers, made from their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from samovar.core.ports import Connector
from samovar.kv.multi import MultiConnector, Part
from samovar.kv.settings import TierSettings, TierSizes
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.retention import RetentionPolicy


@dataclass(frozen=True, slots=True)
class Tiers:
    connector: Connector
    on_disk: TieredConnector | None
    """The part of it that has the disk, to `restore` into."""
    num_slots: int
    """Of the one arena that all host tiers share."""


def build_tiers(
    settings: TierSettings,
    sizes: TierSizes,
    policy: RetentionPolicy,
    block_bytes: int,
    compute_s: Callable[[], float] = lambda: 0.02,
    tuning: Tuning | None = None,
) -> Tiers:
    """`compute_s`: seconds to compute one block. `tuning`: rates to start from, where they are known beforehand; how
    much may be written to the disk is in the settings."""
    disk = settings.disk
    tuning = replace(tuning or Tuning(), write_bytes_per_s=disk.write_bytes_per_s if disk is not None else None)
    parts: list[TieredConnector] = []
    for i, host_blocks in enumerate(sizes.host_blocks):
        disk_blocks = sizes.disk_blocks if disk is not None and disk.host == i else 0
        parts.append(TieredConnector(host_blocks, disk_blocks, policy, block_bytes, tuning, compute_s))
    on_disk = parts[disk.host] if disk is not None else None
    num_slots = sum(sizes.host_blocks)
    if len(parts) == 1:
        return Tiers(parts[0], on_disk, num_slots)
    named = zip(settings.hosts, parts, sizes.host_blocks, strict=True)
    return Tiers(MultiConnector([Part(host.name, part, blocks) for host, part, blocks in named]), on_disk, num_slots)
