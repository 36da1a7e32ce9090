"""Formula (f): seconds of a load."""

from __future__ import annotations

import pytest

from samovar.spec.catalog import load_device
from samovar.spec.link import Link

LINK = Link("host", "a test", 50e9, 25e9, 10e-6, 20e9)


def test_by_hand() -> None:
    assert LINK.load_s(1e9) == pytest.approx(10e-6 + 1 / 20), "one flow does not fill the link"
    assert LINK.load_s(1e9, active=5) == pytest.approx(10e-6 + 5 / 50)
    assert LINK.store_s(1e9, active=2) == pytest.approx(10e-6 + 2 / 25)


def test_published_loads() -> None:
    """100k tokens at 51 GB/s: V4-Pro's 0.51 GB 10 ms, K2's 3.5 GB 69 ms; at 6 GB/s 84 and 586 ms."""
    host = load_device("MI355X").link("host")
    assert host.load_s(0.51e9) == pytest.approx(10e-3, rel=0.02)
    assert host.load_s(100_000 * 35_136) == pytest.approx(69e-3, rel=0.02)
    assert Link("ssd", "a test", 6e9, 6e9, 0.0).load_s(100_000 * 35_136) == pytest.approx(586e-3, rel=0.01)
