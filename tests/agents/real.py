"""Real agents against a scripted server, by hand (they come from npm and PyPI, and are no part of the test suite):

    python -m tests.agents.real claude --bin PREFIX/node_modules/.bin/claude

`claude`, `codex`, `opencode`, `qwen` or `mini`. Each runs in a new folder of two files, and then a second time, going
on with its session: six turns with tool calls. Its tools may only read; its settings live in a folder of their own that
goes with it. What it printed and the ledger of its turns (scripts/agent_ledger.py) follow. Ends with the ledger's exit
code, or with 1 when the agent did not end with the last line of the script.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
import subprocess
import sys
import tempfile

from samovar.models.locate import fetch_default
from tests.agents.checkpoint import make_checkpoint
from tests.agents.clients import CLIENTS, Client, Place
from tests.agents.script import Rule
from tests.agents.server import ROOT, scripted_server

FIRST, SECOND = "What is in this folder", "And what is in the first file"
LAST, LAST_AGAIN = "One file speaks of tea, the other of a kettle.", "The first file says tea."


def script_of(client: Client, work: Path) -> list[Rule]:
    """Three turns for each prompt: one call, two calls at once, the answer; then one call, one call, the answer. Some
    in pieces, so that their ids are not what their text encodes to."""
    first, second = client.look(work, "a.txt"), client.look(work, "b.txt")
    says: list[str | list[str]] = [
        ["I wi", "ll look.\n", first],
        [first, "\n", second],
        f"{LAST}\n{client.end}" if client.end else LAST,
        ["I will lo", "ok again.\n", first],
        second,
        LAST_AGAIN,
    ]
    return [Rule(say=say, turn=turn, when=FIRST) for turn, say in enumerate(says, client.first_turn)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", choices=sorted(CLIENTS))
    parser.add_argument("--bin", required=True, help="the agent's program")
    chosen = parser.parse_args()
    client = CLIENTS[chosen.agent]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    with tempfile.TemporaryDirectory(prefix="samovar-agent-") as name:
        folder = Path(name)
        home, work = folder / "home", folder / "work"
        home.mkdir()
        work.mkdir()
        (work / "a.txt").write_text("tea\n")
        (work / "b.txt").write_text("kettle\n")
        model = make_checkpoint(fetch_default(Path(cache) / "samovar"), folder / "model")
        with scripted_server(model, script_of(client, work), folder) as server:
            said = client.drive(Place(chosen.bin, server.url, home, work), FIRST, SECOND)
        ledger = [
            sys.executable,
            str(ROOT / "scripts" / "agent_ledger.py"),
            str(server.log),
            "--min-tokens",
            str(client.side_tokens),
        ]
        code = subprocess.run(ledger).returncode
    answered = all(last in text for last, text in zip((LAST, LAST_AGAIN), said, strict=False))
    print("It ended as the script does." if answered else "It did not end as the script does.")
    return code if answered else 1


if __name__ == "__main__":
    sys.exit(main())
