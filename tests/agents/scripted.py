"""`samovar serve` with a scripted model, by hand or from tests:

    python -m tests.agents.scripted FOLDER --script script.json --port 8000 [any flag of samovar serve]

FOLDER is made when it is not there (see `checkpoint`). A script is a list of rules (see `script`).
"""

from __future__ import annotations

import os
from pathlib import Path
import sys

from samovar.cli.main import main as samovar
from samovar.models.locate import fetch_default
from samovar.runner import client
from tests.agents.checkpoint import make_checkpoint
from tests.agents.script import VARIABLE

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    folder, script, flags = _split(arguments)
    if not (folder / "config.json").exists():
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        make_checkpoint(fetch_default(Path(cache) / "samovar"), folder)
    os.environ[VARIABLE] = str(script)
    # The engine's process must find this package wherever the server was started.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    client.PROCESS_MODULE = "tests.agents.scripted_process"
    sys.argv = ["samovar", "serve", str(folder), *flags]
    samovar()


def _split(arguments: list[str]) -> tuple[Path, Path, list[str]]:
    if len(arguments) < 3 or "--script" not in arguments[:-1]:
        sys.exit(__doc__)
    at = arguments.index("--script")
    rest = arguments[:at] + arguments[at + 2 :]
    return Path(rest[0]).absolute(), Path(arguments[at + 1]).absolute(), rest[1:]


if __name__ == "__main__":
    main(sys.argv[1:])
