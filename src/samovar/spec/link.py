"""A link that bytes of KV cross: host memory, disk, network, and the ranks' own interconnect."""

from __future__ import annotations

from dataclasses import dataclass
import math

from samovar.spec.toml_table import TomlTable


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes per second of each direction; the two do not share. `in` is towards the device."""

    name: str
    source: str
    in_bytes_per_s: float
    out_bytes_per_s: float
    latency_s: float
    flow_bytes_per_s: float = math.inf
    """The most that a single transfer gets, however idle the link is."""

    def load_s(self, num_bytes: float, active: int = 1) -> float:
        """Towards the device, with `active` transfers (this one among them) sharing the direction equally."""
        return self._seconds(num_bytes, self.in_bytes_per_s, active)

    def store_s(self, num_bytes: float, active: int = 1) -> float:
        return self._seconds(num_bytes, self.out_bytes_per_s, active)

    def _seconds(self, num_bytes: float, bytes_per_s: float, active: int) -> float:
        return self.latency_s + num_bytes / min(bytes_per_s / max(active, 1), self.flow_bytes_per_s)


def read_link(table: TomlTable, name: str, source: str) -> Link:
    """`source` is the file's; a table may name its own."""
    return Link(
        name=name,
        source=table.text("source", source),
        in_bytes_per_s=table.positive("in_bytes_per_s"),
        out_bytes_per_s=table.positive("out_bytes_per_s"),
        latency_s=table.duration_s("latency_s"),
        flow_bytes_per_s=table.positive("flow_bytes_per_s", math.inf),
    )
