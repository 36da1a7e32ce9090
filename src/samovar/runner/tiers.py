"""The tiers below the device, from their settings: memory, disk, the connector that plans and the mover that moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
import os
from pathlib import Path
import time
from typing import Any

from msgspec.structs import replace as replace_struct
from numpy.typing import NDArray
import torch

from samovar.base.errors import ConfigError
from samovar.core.cache_report import Recovered
from samovar.core.ports import Connector
from samovar.core.stats import CacheReport
from samovar.core.stream_names import lasting_name
from samovar.kv.build import Tiers as Planned
from samovar.kv.build import build_tiers
from samovar.kv.host_memory import new_arena
from samovar.kv.layout import BlockLayout
from samovar.kv.mover import TierMover
from samovar.kv.reporting import recovered_conversations
from samovar.kv.settings import DiskSettings, TierSettings, TierSizes, fit
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.models.batch import KVCache
from samovar.policy.retention import RetentionPolicy
from samovar.pool.arena import slot_stride_bytes
from samovar.pool.disk.folder import available_bytes as disk_available_bytes
from samovar.pool.disk.folder import others_bytes
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.settings import capacity_within, records_planned

Report = Callable[[str], None]

_COMPUTE_BLOCK_S = 0.02
"""Seconds to compute a block, where nothing measured it: only compared with the time to read one."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """The mover goes to a runner, which closes it; `close` comes after that."""

    connector: Connector
    mover: TierMover
    sizes: TierSizes
    disk: DiskLog | None
    on_disk: TieredConnector | None = None
    """The part of the connector that has the disk."""
    recovered: tuple[Recovered, ...] = ()
    """Conversations that the disk had at the start, the latest first."""

    def lift_budget(self) -> None:
        """Before the end: what is to survive it is written as fast as the disk takes it."""
        if self.on_disk is not None:
            self.on_disk.lift_budget(time.monotonic())

    def not_durable_blocks(self) -> int:
        """That are to survive a restart and would not do so now."""
        return sum(report.not_yet_durable_blocks for report in self.connector.report())

    def measured(self, report: CacheReport) -> CacheReport:
        """With what memory and disk really take, which the connector can only estimate."""
        taken = {"disk": self.disk.stats().physical_bytes} if self.disk is not None else {}
        if len(self.sizes.host_blocks) == 1:  # several share one arena
            taken["host"] = self.mover.stats().host_touched_bytes
        tiers = tuple(replace_struct(t, physical_bytes=taken.get(t.tier, t.physical_bytes)) for t in report.tiers)
        return replace_struct(report, tiers=tiers)

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()


@dataclass(frozen=True, slots=True)
class Device:
    """What the tiers must know of the pool above them."""

    cache: KVCache
    num_blocks: int
    namespace: bytes
    """Differs whenever equal tokens would not have equal KV."""
    compute_block_s: float | None = None
    """Measured, or None."""


def check_tiers(settings: TierSettings) -> tuple[str, ...]:
    """What can be known before a model is loaded: makes the disk's folder. Returns warnings. Raises ConfigError."""
    if settings.disk is not None:
        _require_folder(settings.disk)
    if settings.load_async:
        return settings.warnings
    return (*settings.warnings, "load_async false has no effect: loads never hold up other requests")


def check_sizes(settings: TierSettings, block_bytes: int) -> None:
    """Before the model is loaded: `block_bytes` is what a block takes at least. Raises ConfigError when a tier holds no
    block."""
    for host in settings.hosts:
        if host.num_bytes is not None and host.num_bytes < (least := slot_stride_bytes(block_bytes)):
            raise ConfigError(f"the tier {host.name} has {host.num_bytes} bytes: a block takes at least {least} bytes")
    if settings.disk is not None:
        records_planned(settings.disk.num_bytes, block_bytes)


def make_tiers(
    settings: TierSettings,
    device: Device,
    policy: RetentionPolicy,
    available_bytes: int | None,
    report: Report,
    on_done: Callable[[], None],
) -> Tiers:
    """`available_bytes`: memory beside the device's pool. `report` gets a line about what a disk had; `on_done` is
    called after every transfer, from any thread. Raises ConfigError."""
    layout = BlockLayout(pool_arrays(device.cache))
    size = layout.block_bytes
    namespace = device.namespace + layout.fingerprint
    settings, clipped = _clipped(settings, namespace)
    sizes = fit(settings, size, device.num_blocks, available_bytes)
    sizes = replace(sizes, warnings=(*sizes.warnings, *clipped))
    try:
        arena = new_arena(sum(sizes.host_blocks), size)
    except MemoryError as error:
        raise ConfigError(f"the host tier of {sum(sizes.host_blocks)} blocks of {size} bytes: {error}") from error
    began = time.monotonic()
    disk = None if settings.disk is None else _open_disk(settings.disk, namespace, size)
    if disk is not None:
        sizes = replace(sizes, disk_blocks=disk.max_records)
    compute_s = device.compute_block_s or _COMPUTE_BLOCK_S
    planned = build_tiers(settings, sizes, policy, size, lambda: compute_s, Tuning(probes=True))
    recovered: tuple[Recovered, ...] = ()
    if disk is not None and settings.disk is not None:
        said, recovered = _restore(planned, disk, began)
        report(said + _beside(settings.disk.path, namespace))
    mover = TierMover(layout, arena, disk, on_done)
    return Tiers(planned.connector, mover, sizes, disk, planned.on_disk, recovered)


def pool_arrays(cache: KVCache) -> list[NDArray[Any]]:
    """Keys and values of each layer, the same memory as numpy arrays; a block is their first dimension."""
    if cache.tiles:
        return [array for pair in cache.tiles for array in pair]
    return [_as_numpy(pool) for pair in zip(cache.keys, cache.values, strict=True) for pool in pair]


def _as_numpy(pool: torch.Tensor) -> NDArray[Any]:
    # numpy knows no bfloat16.
    array: NDArray[Any] = (pool.view(torch.int16) if pool.dtype == torch.bfloat16 else pool).numpy()
    return array


def _require_folder(disk: DiskSettings) -> None:
    try:
        Path(disk.path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the disk tier's folder {disk.path} cannot be made: {error.strerror}") from None
    if not os.access(disk.path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"the disk tier's folder {disk.path} cannot be written")


def _clipped(settings: TierSettings, namespace: bytes) -> tuple[TierSettings, tuple[str, ...]]:
    """The disk's size at what its file system has, free or in the tier's own files; and the warning."""
    disk = settings.disk
    there = None if disk is None else disk_available_bytes(disk.path, namespace)
    if disk is None or there is None or disk.num_bytes <= (most := capacity_within(there)):
        return settings, ()
    warning = (
        f"the disk tier is to have {disk.num_bytes / 2**30:.1f} GiB, and {there / 2**30:.1f} GiB are free for it in "
        f"{disk.path}: it gets {most / 2**30:.1f} GiB"
    )
    return replace(settings, disk=replace(disk, num_bytes=most)), (warning,)


def _open_disk(disk: DiskSettings, namespace: bytes, block_bytes: int) -> DiskLog:
    return DiskLog.open(disk.path, namespace, block_bytes, disk.num_bytes)


def _restore(planned: Planned, disk: DiskLog, began: float) -> tuple[str, tuple[Recovered, ...]]:
    """What there is to say of it, and whose conversations they are."""
    assert planned.on_disk is not None
    now = time.monotonic()
    found = disk.recovered()
    records = [(record.key, record.parent, lasting_name(record.stream)) for record in found]
    lost = planned.on_disk.restore(records, now)
    dropped = f", {len(lost):,} more of no use without what they follow" if lost else ""
    streams = len({record.stream for record in found if record.stream})
    said = (
        f"disk tier: {len(records) - len(lost):,} blocks of {streams:,} conversations found in "
        f"{time.monotonic() - began:.1f} s{dropped}, in {disk.folder}"
    )
    return said, recovered_conversations(records, lost, now)


def _beside(folder: str, namespace: bytes) -> str:
    taken = others_bytes(folder, namespace)
    return f"; {taken / 2**30:.1f} GiB beside them are of other models or settings" if taken else ""
