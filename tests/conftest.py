"""What tests of more than one folder share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, from the user's cache (downloaded there the first time)."""
    from samovar.models.locate import fetch_default  # brings the hub's client, which most tests do without

    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return fetch_default(Path(base) / "samovar")
