"""The usual engine process around a scripted model: `python -m tests.agents.scripted_process`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
import logging
import os
from pathlib import Path
import sys

from samovar.models.locate import locate
from samovar.runner import boot, process
from samovar.runner.config import EngineProcessConfig
from samovar.text.checkpoint import load_text
from tests.agents.script import VARIABLE, Script, read_script
from tests.agents.scripted_runner import ScriptedRunner

_usual_boot = boot.boot


def _boot(config: EngineProcessConfig, report: boot.Report, on_done: Callable[[], None]) -> boot.Booted:
    text = load_text(locate(config.model, Path(config.cache_dir)).path)
    script = Script(read_script(Path(os.environ[VARIABLE])), text.tokenizer)
    boot.LocalRunner = partial(ScriptedRunner, script)  # type: ignore[assignment,misc]
    return _usual_boot(config, report, on_done)


if __name__ == "__main__":
    process.boot = _boot  # type: ignore[attr-defined]
    code = process.main()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)
