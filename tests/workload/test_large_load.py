"""Statistics of a load of real size, within their time and memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from samovar.workload.weka_writer import write_weka

SESSIONS = 700
SECONDS, BYTES = 60.0, 2 << 30
STATS = """
import re, sys, time
from samovar.cli.trace import app
app(["stats", sys.argv[1], "--json", sys.argv[2]], standalone_mode=False)
# Not ru_maxrss, which begins with what the process had that started this one.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(time.process_time(), int(peak[1]) * 1024, file=sys.stderr)
"""


@pytest.mark.slow
def test_seven_hundred_sessions(tmp_path: Path) -> None:
    folder, data = tmp_path / "traces", tmp_path / "stats.json"
    folder.mkdir()
    for session in synthesise(SynthConfig(sessions=SESSIONS, input_median=76_000, input_p90=160_000)):
        write_weka(session, folder / f"{session.id}.json")
    assert sum(path.stat().st_size for path in folder.iterdir()) > 280e6
    done = subprocess.run(
        [sys.executable, "-c", STATS, str(folder), str(data)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, size = map(float, done.stderr.split()[-2:])
    assert seconds < SECONDS
    assert size < BYTES
    stats = json.loads(data.read_text())
    assert stats["totals"]["sessions"] == SESSIONS
    assert stats["capacity"]["lru"][-1] == pytest.approx(stats["ceiling"]["tokens"])
