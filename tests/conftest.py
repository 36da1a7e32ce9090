"""What tests of more than one folder share."""

from __future__ import annotations

import os
from pathlib import Path
import sys

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is told when it happens: where a run is ended from outside, its summary never comes. With several
    processes only the one that gathers the reports tells."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        print(f"\n{report.outcome} in {report.when}: {report.nodeid}", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, from the user's cache (downloaded there the first time)."""
    from samovar.models.locate import fetch_default  # brings the hub's client, which most tests do without

    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return fetch_default(Path(base) / "samovar")
