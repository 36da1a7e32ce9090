"""A long run of the disk log under everything that can go wrong: 0 wrong bytes, nothing acknowledged lost.

    python -m benchmarks.disk_faults --reads 1000000 --seconds 1200 --seed 1

A process with two writers, two readers and a saboteur works on one log: records are written, overwritten and deleted
until the log is full, bits flip in every part of its files, files are cut. It is killed (SIGKILL) before or in the
middle of a write, sync, punch or removal that was drawn by lot, or at any moment from outside. Then this process
opens the log, looks at every key, and starts the next one. Beside it a thread adds up what the files occupy.

Exits with 1 unless as many blocks were delivered as asked for, no read delivered a byte that was not written for its
key or an older version than was acknowledged before it began, every acknowledged record that was not damaged on
purpose was there (in the run and after the kill), nothing deleted came back unless its tombstone was damaged, and the
files never occupied more than 1.1 times the capacity. The last line is the result as JSON."""

from __future__ import annotations

import argparse
from collections import Counter
import json
from pathlib import Path
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from benchmarks.disk_faults_state import COUNTERS, MISSING, State, key_of, size_of, version_in
from benchmarks.disk_faults_worker import CAPACITY_BYTES, open_log

from samovar.pool.disk.memory import aligned_buffer

NUM_KEYS = 600
"""Half as many again as the capacity holds."""
ROUNDS_PER_FOLDER = 25
MOST_CALLS = 400
"""That change files, before the process is killed."""
HARD_BYTES = CAPACITY_BYTES * 11 // 10


class Watch:
    """Adds up the blocks of all segments under a folder, again and again."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._folder: Path | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look_at(self, folder: Path | None) -> None:
        self._folder = folder

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.004):
            folder = self._folder
            if folder is not None:
                self.most_bytes = max(self.most_bytes, occupied_bytes(folder))


def occupied_bytes(folder: Path) -> int:
    total = 0
    for path in folder.glob("*/*.seg"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def run_worker(folder: Path, state_path: Path, seed: int, punching: bool, rng: random.Random) -> str:
    """Until it is dead. Returns "" or what it said."""
    from_outside = rng.random() < 0.3
    calls = 1 << 40 if from_outside else rng.randrange(1, MOST_CALLS)
    arguments = [
        str(folder),
        str(state_path),
        str(NUM_KEYS),
        str(seed),
        "punching" if punching else "copying",
        str(calls),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.disk_faults_worker", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = process.communicate(timeout=rng.uniform(0.5, 5.0) if from_outside else 60.0)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
        if not from_outside:
            return "the worker did nothing for 60 s"
    return "" if process.returncode == -signal.SIGKILL else f"the worker ended by itself: {said}"


def verify(folder: Path, state: State, punching: bool, found: Counter[str]) -> None:
    """After a kill: opens the log, reads every key twice (in one batch, and alone), and takes what is there for the
    truth."""
    log = open_log(folder, punching, background=False)
    buffers = [aligned_buffer(size_of(n)) for n in range(NUM_KEYS)]
    listed = {int.from_bytes(info.key, "big") for info in log.recovered()}
    outcomes = log.read_many_into([key_of(n) for n in range(NUM_KEYS)], buffers)
    for n in range(NUM_KEYS):
        version = MISSING
        if outcomes[n] == "ok":
            got = version_in(n, bytes(buffers[n]))
            if got is None:
                found["wrong_bytes"] += 1
                continue
            version = got
        wrong = state.allowed(n, version)
        if wrong:
            found[wrong] += 1
        if outcomes[n] == "ok" and n not in listed:
            found["unexpected"] += 1
        alone = log.read_into(key_of(n), buffers[n])
        found["unexpected"] += int((alone == "ok") != (outcomes[n] == "ok"))
        state.found(n, version)
        found["reads"] += 2
        found["read_ok"] += (outcomes[n] == "ok") + (alone == "ok")
    found["recovered"] += len(listed)
    found["most_believed_bytes"] = max(found["most_believed_bytes"], log.stats().physical_bytes)
    for reason, count in log.stats().failures.items():
        found[reason] += count
    log.close()


def totals(found: Counter[str], state: State | None) -> Counter[str]:
    both = Counter(found)
    for name in COUNTERS if state is not None else ():
        if name == "most_believed_bytes":
            both[name] = max(both[name], state.total(name)) if state else both[name]
        else:
            both[name] += state.total(name) if state else 0
    return both


def run(reads: int, seconds: float, seed: int, folder: Path) -> dict[str, object]:
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    state: State | None = None
    watch = Watch()
    begin = time.monotonic()
    kills, home, broken = 0, folder, ""
    while not broken and time.monotonic() - begin < seconds and totals(found, state)["read_ok"] < reads:
        if kills % ROUNDS_PER_FOLDER == 0:
            found = totals(found, state)
            found["keys_with_damaged_tombstones"] += int(state.revived.sum()) if state else 0
            shutil.rmtree(home, ignore_errors=True)
            home = folder / f"folder-{kills // ROUNDS_PER_FOLDER}"
            home.mkdir(parents=True)
            state = State(home / "state", NUM_KEYS, create=True)
        assert state is not None
        punching = kills % 3 != 2
        watch.look_at(home)
        broken = run_worker(home, home / "state", rng.randrange(1 << 30), punching, rng)
        kills += 1
        verify(home, state, punching, found)
        show = totals(found, state)
        print(
            f"\r{show['read_ok']:>9,} blocks read, {kills} kills, {show['bit_flips']:,} bits flipped, "
            f"{show['wrong_bytes']} wrong, {show['lost']} lost ",
            end="",
            file=sys.stderr,
            flush=True,
        )
    watch.stop()
    print(file=sys.stderr)
    result: dict[str, object] = dict(sorted(totals(found, state).items()))
    return result | {
        "kills": kills,
        "seed": seed,
        "seconds": round(time.monotonic() - begin, 1),
        "capacity_bytes": CAPACITY_BYTES,
        "most_occupied_bytes": watch.most_bytes,
        "broken": broken,
    }


def faults_of(result: dict[str, object], reads: int) -> list[str]:
    """Why the run does not count, in words."""
    value = {
        name: int(str(result.get(name, 0))) for name in ("read_ok", "wrong_bytes", "lost", "came_back", "unexpected")
    }
    faults = [f"{name}: {value[name]}" for name in value if name != "read_ok" and value[name]]
    if value["read_ok"] < reads:
        faults.append(f"only {value['read_ok']} of {reads} blocks were read: give it more --seconds")
    for name in ("most_occupied_bytes", "most_believed_bytes"):
        if int(str(result[name])) > HARD_BYTES:
            faults.append(f"{name}: {result[name]}, more than 1.1 times {CAPACITY_BYTES}")
    if result["broken"]:
        faults.append(str(result["broken"]))
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1800.0, help="stop after so long, reached or not")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="on the disk to be tested (default: a temporary one)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        result = run(given.reads, given.seconds, given.seed, Path(folder))
    faults = faults_of(result, given.reads)
    for fault in faults:
        print(f"FAILED {fault}", file=sys.stderr)
    print(json.dumps(result | {"passed": not faults}))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
