"""Where the real traces are, and how tests do without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_traces() -> Path:
    default = Path(__file__).resolve().parents[3] / "shared" / "traces"
    folder = Path(os.environ.get("SAMOVAR_TRACES") or default)
    if not folder.is_dir():
        pytest.skip(f"no real traces in {folder} (SAMOVAR_TRACES names another folder)")
    return folder
