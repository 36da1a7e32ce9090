"""What a start settles: a measured step size keeps no engine from starting, and no path gets into the settings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.runner.conftest import Tiny

from samovar.base.errors import ConfigError
from samovar.runner import boot as module
from samovar.runner.boot import Booted, boot
from samovar.runner.config import EngineProcessConfig

pytestmark = pytest.mark.torch


def start(tiny: Tiny, **values: object) -> Booted:
    config = EngineProcessConfig(
        **{"model": str(tiny.folder), "cache_dir": "somewhere/secret", "num_gpu_blocks_override": 64, **values}  # type: ignore[arg-type]
    )
    return boot(config, lambda text: None, lambda: None)


@pytest.mark.parametrize("rate", [0.1, 500.0, 1e9])
@pytest.mark.parametrize("threshold", [0, 1, 64, 100, 8192, 100_000])
def test_a_slow_machine_starts_whatever_the_threshold(
    tiny: Tiny, rate: float, threshold: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "measure_prefill_rate", lambda model, scratch: rate)
    booted = start(tiny, long_prefill_token_threshold=threshold)
    booted.close(5)
    budget = booted.info.max_num_batched_tokens
    kept = threshold if threshold < budget else 0
    assert booted.engine.config.long_prefill_token_threshold == kept
    assert booted.info.settings["long-prefill-token-threshold"] == str(kept)
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [str(threshold) in text and str(budget) in text for text in warned] == [True] * (kept != threshold)


def test_flags_that_contradict_each_other_are_refused(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="long_prefill_token_threshold 64 has no effect"):
        start(tiny, max_num_batched_tokens=64, long_prefill_token_threshold=64)


def test_settings_hold_no_path(tiny: Tiny, tmp_path: Path) -> None:
    booted = start(tiny, max_num_batched_tokens=64, record_path=str(tmp_path / "calls"))
    booted.close(5)
    settings = booted.info.settings
    assert not {"model", "cache-dir", "record-path"} & settings.keys() and settings["max-num-batched-tokens"] == "64"
    assert not [name for name, value in settings.items() if "/" in value]
