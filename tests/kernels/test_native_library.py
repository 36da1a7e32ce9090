"""How many threads the native kernels get: what the process may run on, within its control group's share."""

from __future__ import annotations

from pathlib import Path

import pytest

from samovar.kernels.cpu import native_library
from samovar.kernels.cpu.native_library import available_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("9900000 100000", 8),
        ("x", 8),
    ],
)
def test_version_two(text: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert available_cores(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3), ("0", 8)])
def test_version_one(quota: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert available_cores(tmp_path) == expected


def test_without_control_groups(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == 8
