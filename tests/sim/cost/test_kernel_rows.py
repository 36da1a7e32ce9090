"""The model beside every measured kernel that it takes its efficiencies from."""

from __future__ import annotations

import statistics

from tests.sim.cost.kernel_rows import all_rows

ROWS = all_rows()

FAR = {
    ("MLA, 128 heads", "32 x 131072 tokens"),
    ("CSA prompt", "8192 tokens"),
    ("experts, EP8", "1 tokens"),
}
"""Off by more than a fifth, told in docs/simulator.md."""


def test_most_rows_are_close() -> None:
    assert statistics.median(abs(row.error) for row in ROWS) < 0.04
    assert {(row.name, row.size) for row in ROWS if abs(row.error) > 0.20} == FAR
    assert max(abs(row.error) for row in ROWS) < 0.40
