"""The tiny model with a long context, once per run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.checkpoint import make_checkpoint


@pytest.fixture(scope="session")
def agent_model(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(smollm2_gguf, tmp_path_factory.mktemp("agent-model"))
