"""`samovar serve` as a process of its own, scripted or not, for clients that speak HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import re
import subprocess
import sys
import time

from tests.agents.script import Rule, write_script

START_S = 120.0
ROOT = Path(__file__).parents[2]
UNMEASURED = ("--max-num-batched-tokens", "2048", "--max-num-mixed-prefill-tokens", "512", "--monokernel", "off")
"""Nothing is timed at the start: it takes a second, and plans are the same on every machine."""


class Server:
    """`url` without a path. Started by whoever makes it, ended by `close`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("w") as stderr:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command, "--port", "0", "--num-threads", "1", *UNMEASURED],
                stderr=stderr,
                cwd=ROOT,
                env=environment,
            )
        self.url = self._wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)

    def _wait(self) -> str:
        began = time.monotonic()
        while time.monotonic() - began < START_S:
            found = re.search(r"serving .* on (http://\S+)/v1", self.log.read_text())
            if found:
                return found[1]
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.05)
        self.process.kill()
        raise TimeoutError(self.log.read_text())


@contextmanager
def scripted_server(model: Path, rules: Sequence[Rule], folder: Path, *flags: str) -> Iterator[Server]:
    """`folder` takes the script and the log."""
    script = write_script(folder / "script.json", rules)
    server = Server(["tests.agents.scripted", str(model), "--script", str(script), *flags], folder / "log")
    try:
        yield server
    finally:
        server.close()


@contextmanager
def model_server(model: Path, folder: Path, *flags: str) -> Iterator[Server]:
    server = Server(["samovar.cli.main", "serve", str(model), *flags], folder / "log")
    try:
        yield server
    finally:
        server.close()
