"""All rows, in the order of the table."""

from __future__ import annotations

from benchmarks import (
    sim_published_agentx,
    sim_published_cadence,
    sim_published_memory,
    sim_published_mono,
)
from benchmarks.sim_published_form import Row

_ORDER = ("T6", "T1", "T2", "T3", "T4", "T9", "T14", "T15 routing", "T15 DCP")
_FOUND = {
    row.name: row
    for module in (sim_published_agentx, sim_published_cadence, sim_published_memory, sim_published_mono)
    for row in module.ROWS
}
ROWS: tuple[Row, ...] = tuple(_FOUND[name] for name in _ORDER)
