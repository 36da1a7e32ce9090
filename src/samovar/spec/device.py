"""A device: memory, peaks, links. What kernels reach of it is in `spec.kernels`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.spec.link import Link, read_link
from samovar.spec.number_format import COMPUTE_TYPES, ComputeType
from samovar.spec.toml_table import TomlTable

LINKS = ("host", "ssd", "rdma")


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """What ranks exchange over without a network."""

    bytes_per_s: float
    """Of one rank, one direction."""
    ranks: int
    """How many reach each other so; more of them also use the RDMA link."""


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    source: str
    date: str
    memory_bytes: int
    reserved_bytes: int
    """Taken by the runtime, graphs and an allocator's waste, whatever the model."""
    collective_bytes: int
    """Buffers of collectives, when there are several ranks."""
    memory_bytes_per_s: float
    flops: Mapping[ComputeType, float]
    """Dense peaks, a multiplication and an addition counting as two. bf16 is always there."""
    scale_up: ScaleUp
    links: Mapping[str, Link]
    """By name: host, ssd, rdma."""
    kernels: str
    """Name or path of the figures of its kernels."""
    devices_per_machine: int = 8
    """That share host memory and disk."""

    def compute_type(self, wanted: ComputeType) -> ComputeType:
        """What products of that type run as: bf16 where the device has no unit for it."""
        return wanted if wanted in self.flops else "bf16"

    def link(self, name: str) -> Link:
        """Raises ConfigError when its file gives none of that name."""
        if name not in self.links:
            raise ConfigError(f"device {self.name} has no [links.{name}]; it has {', '.join(self.links) or 'none'}")
        return self.links[name]


def read_device(table: TomlTable) -> Device:
    """Raises ConfigError."""
    source = table.text("source")
    flops, scale_up = table.table("flops"), table.table("scale_up")
    found = {name: flops.positive(name) for name in COMPUTE_TYPES if flops.has(name)}
    if "bf16" not in found:
        raise flops.wrong("bf16", "operations per second: other types fall back to it")
    links = table.table("links") if table.has("links") else None
    device = Device(
        name=table.text("name"),
        source=source,
        date=table.day("date"),
        memory_bytes=table.integer("memory_bytes"),
        reserved_bytes=table.integer("reserved_bytes", minimum=0),
        collective_bytes=table.integer("collective_bytes", minimum=0),
        memory_bytes_per_s=table.positive("memory_bytes_per_s"),
        flops=found,
        scale_up=ScaleUp(scale_up.positive("bytes_per_s"), scale_up.integer("ranks")),
        links={} if links is None else {n: read_link(links.table(n), n, source) for n in LINKS if links.has(n)},
        kernels=table.text("kernels"),
        devices_per_machine=table.integer("devices_per_machine", 8),
    )
    table.done()
    if device.reserved_bytes >= device.memory_bytes:
        raise table.wrong("reserved_bytes", f"less than memory_bytes, {device.memory_bytes}")
    return device
