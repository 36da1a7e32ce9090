"""A writing process is killed (SIGKILL) at random moments: what it had acknowledged is there.

The kernel keeps what a dead process wrote, synced or not, so the disk is not waited for: more happens before the kill.
"""

from __future__ import annotations

import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.pool.disk.helpers import CAPACITY_BYTES, data_of, open_log, physical_bytes, read

ROOT = Path(__file__).resolve().parents[3]
WRITER = """
import random, sys
from pathlib import Path
from tests.pool.disk.helpers import block, key_of, open_log

log = open_log(Path(sys.argv[1]), background=True, fsync=False)
rng = random.Random(int(sys.argv[2]))
say = sys.stdout.write
while True:
    version = rng.randrange(1 << 40)
    batch = rng.sample(range(120), rng.randrange(1, 7))
    say(f"try {version} {batch}\\n")
    sys.stdout.flush()
    outcomes = log.write([block(n, version) for n in batch])
    say(f"done {[n for n, outcome in zip(batch, outcomes) if outcome == 'ok']}\\n")
    sys.stdout.flush()
    if rng.random() < 0.3:
        dropped = rng.sample(range(120), 10)
        say(f"drop {dropped}\\n")
        sys.stdout.flush()
        log.delete([key_of(n) for n in dropped])
        log.flush()
        say("dropped\\n")
        sys.stdout.flush()
"""


@pytest.mark.parametrize("seed", range(3))
def test_everything_acknowledged_is_there(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    model: dict[int, set[int]] = {}
    for round_number in range(3):
        said = _killed_writer(tmp_path, seed * 10 + round_number, rng.uniform(0.05, 0.3))
        _replay(said, model)
        with open_log(tmp_path, fsync=False) as log:
            for number in range(120):
                possible = model.get(number, {-1})
                got = read(log, number)
                versions = {v for v in possible if got == (data_of(number, v) if v >= 0 else "missing")}
                assert versions, f"{number} should be one of {possible}"
                model[number] = versions
            log.check()
        assert physical_bytes(tmp_path) <= CAPACITY_BYTES * 1.1


def _killed_writer(folder: Path, seed: int, after_s: float) -> str:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    first = ""
    while "done" not in first:
        line = process.stdout.readline()
        assert line, "it ended by itself"
        first += line
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    return first + rest


def _replay(said: str, model: dict[int, set[int]]) -> None:
    """What each key may hold by the last word of the process, -1 for nothing. Whatever was under way may be either."""
    version, batch, dropped = 0, [], []
    for line in said.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        word, *rest = line.split(maxsplit=1)
        if word == "try":
            number, numbers = rest[0].split(maxsplit=1)
            version, batch = int(number), _numbers(numbers)
            for n in batch:
                model[n] = model.get(n, {-1}) | {version}
        elif word == "done":
            acknowledged = set(_numbers(rest[0]))
            for n in batch:
                model[n] = {version} if n in acknowledged else model[n] - {version}
        elif word == "drop":
            dropped = _numbers(rest[0])
            for n in dropped:
                model[n] = model.get(n, {-1}) | {-1}
        else:
            for n in dropped:
                model[n] = {-1}


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.strip().strip("[]").split(",") if part.strip()]
