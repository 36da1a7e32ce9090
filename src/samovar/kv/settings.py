"""Which tiers there are and how large: from `--kv-transfer-config` or the short flags, and then as blocks of what the
machine has. The first half needs no model, so a typo is known before one is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from samovar.base.errors import ConfigError
from samovar.base.units import parse_bytes
from samovar.kv.config import FLAG, KVTransferConfig, LoadFailurePolicy
from samovar.pool.arena import slot_stride_bytes
from samovar.pool.disk.settings import least_capacity_bytes, records_planned

STAGING_BYTES: Final = 1 << 30
"""Of the host tier that a disk needs, when none is asked for."""
MOST_OF_FREE_MEMORY: Final = 0.7
_GIB = 1 << 30
_MOST_BARE_GIB = 1 << 16
"""A larger number without a unit is meant as something else."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """A host tier; its size is in one of the two."""

    name: str
    """The connector's, which tells several apart."""
    num_bytes: int | None
    num_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class DiskSettings:
    path: str
    num_bytes: int
    write_bytes_per_s: int | None = None
    host: int = 0
    """Index of the host tier that it stands behind."""


@dataclass(frozen=True, slots=True)
class TierSettings:
    hosts: tuple[HostSettings, ...]
    """At least one; more than one are separate connectors under a `MultiConnector`."""
    disk: DiskSettings | None = None
    load_async: bool = True
    load_failure_policy: LoadFailurePolicy = "recompute"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TierSizes:
    """In blocks. `host_blocks` has an entry per host tier."""

    host_blocks: tuple[int, ...]
    disk_blocks: int
    """On a file system that punches holes; an open log knows for certain."""
    warnings: tuple[str, ...] = ()


def tiers_of(
    kv_transfer_config: str | None = None,
    *,
    offloading_size: str | None = None,
    disk_path: str | None = None,
    disk_size: str | None = None,
    disk_write_budget: str | None = None,
) -> TierSettings | None:
    """What the flags ask for, None for no tiers. Raises ConfigError."""
    short = {
        "--kv-offloading-size": offloading_size,
        "--kv-disk-path": disk_path,
        "--kv-disk-size": disk_size,
        "--kv-disk-write-budget": disk_write_budget,
    }
    given = [flag for flag, value in short.items() if value is not None]
    if kv_transfer_config is not None:
        if given:
            raise ConfigError(f"{FLAG} and {', '.join(given)} are two ways to say the same; give one", param=FLAG)
        return _of_config(KVTransferConfig.parse(kv_transfer_config))
    if not given:
        return None
    for flag, other in (("--kv-disk-size", "--kv-disk-path"), ("--kv-disk-write-budget", "--kv-disk-path"),
                        ("--kv-disk-path", "--kv-disk-size")):  # fmt: skip
        if short[flag] is not None and short[other] is None:
            raise ConfigError(f"{flag} is given without {other}, and has no effect without it", param=flag)
    disk = None
    if disk_path is not None and disk_size is not None:
        rate = disk_write_budget
        budget = None if rate is None else parse_bytes(rate.strip().removesuffix("/s"), "--kv-disk-write-budget")
        disk = DiskSettings(disk_path, parse_gib(disk_size, "--kv-disk-size"), budget)
        _refuse_tiny(disk, f"--kv-disk-size is {disk_size!r}")
    if offloading_size is not None:
        return TierSettings((HostSettings("host", parse_gib(offloading_size, "--kv-offloading-size")),), disk)
    return TierSettings((HostSettings("host", STAGING_BYTES),), disk, notes=(_staging_note("--kv-offloading-size"),))


def parse_gib(text: str, flag: str) -> int:
    """A size with a unit, or a bare number of GiB. Raises ConfigError."""
    try:
        gib = float(text)
    except ValueError:
        try:
            return parse_bytes(text, flag)
        except ConfigError:
            raise ConfigError(
                f"{flag} is {text!r}: give a number of GiB, or one with a unit such as 512MiB", param=flag
            ) from None
    if not gib <= _MOST_BARE_GIB:
        raise ConfigError(
            f"{flag} is {text!r}, and a number without a unit is GiB, at most {_MOST_BARE_GIB}: give a unit, such as "
            "512MiB",
            param=flag,
        )
    if not int(max(gib, 0.0) * _GIB):
        raise ConfigError(f"{flag} is {text!r}: it must be more than 0", param=flag)
    return int(gib * _GIB)


def _refuse_tiny(disk: DiskSettings, given: str) -> None:
    """What no model's blocks would fit into."""
    least = least_capacity_bytes(1)
    if disk.num_bytes < least:
        raise ConfigError(f"{given}: a disk tier takes at least {least} bytes, more where blocks are large")


def _of_config(config: KVTransferConfig) -> TierSettings:
    parts = config.connectors or (config,)
    names = [part.kv_connector for part in parts]
    hosts: list[HostSettings] = []
    notes: list[str] = []
    disk = None
    for i, part in enumerate(parts):
        name = names[i] if names.count(names[i]) == 1 else f"{names[i]}-{names[:i].count(names[i]) + 1}"
        num_bytes = part.host_bytes
        if num_bytes is None and part.host_blocks is None:
            num_bytes = STAGING_BYTES
            notes.append(_staging_note(f"{name}'s host size"))
        hosts.append(HostSettings(name, num_bytes, part.host_blocks))
        if part.disk_path is not None and part.disk_bytes is not None:
            disk = DiskSettings(part.disk_path, part.disk_bytes, part.disk_write_bytes_per_s, i)
            _refuse_tiny(disk, f"{FLAG}: disk_capacity_bytes is {part.disk_bytes}")
    return TierSettings(
        tuple(hosts), disk, config.load_async, config.kv_load_failure_policy, tuple(notes), config.warnings
    )


def _staging_note(what: str) -> str:
    return f"{what} is not given: the disk tier gets 1 GiB of memory to pass its blocks through"


def fit(
    settings: TierSettings,
    block_bytes: int,
    device_blocks: int,
    available_bytes: int | None = None,
) -> TierSizes:
    """The sizes in blocks. `available_bytes`: memory that could still be taken, None when the system does not say.
    Raises ConfigError when a tier holds no block."""
    warnings: list[str] = []
    slot_bytes = slot_stride_bytes(block_bytes)
    wanted = [
        (host.num_blocks or 0) * slot_bytes if host.num_bytes is None else host.num_bytes for host in settings.hosts
    ]
    share = 1.0
    if available_bytes is not None and sum(wanted) > (most := int(available_bytes * MOST_OF_FREE_MEMORY)):
        share = most / sum(wanted)
        warnings.append(
            f"the host tier is to have {_gib(sum(wanted))}, and {_gib(available_bytes)} of memory are free: it gets "
            f"{MOST_OF_FREE_MEMORY:.0%} of that, {_gib(most)}"
        )
    host_blocks = tuple(int(num_bytes * share) // slot_bytes for num_bytes in wanted)
    for host, num_bytes, num_blocks in zip(settings.hosts, wanted, host_blocks, strict=True):
        if num_blocks == 0:
            size = f"{int(num_bytes * share)} bytes" + (" after clipping" if share < 1.0 else "")
            raise ConfigError(f"the tier {host.name} has {size} and holds no block: one takes {slot_bytes} bytes")
    if settings.disk is None and sum(host_blocks) <= device_blocks:
        warnings.append(
            f"the host tier holds {sum(host_blocks)} blocks and the device {device_blocks}: it cannot help, since "
            "everything in it is on the device as well; make it larger"
        )
    disk_blocks = 0 if settings.disk is None else records_planned(settings.disk.num_bytes, block_bytes)
    return TierSizes(host_blocks, disk_blocks, tuple(warnings))


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
