"""The process that is killed: writers, readers and a saboteur on one log. Started by `benchmarks.disk_faults`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
import os
from pathlib import Path
import random
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

from benchmarks.disk_faults_state import MISSING, State, data_of, key_of, size_of, version_in
import numpy as np

from samovar.pool.disk.files import OsFiles
from samovar.pool.disk.format import BLOCK_BYTES, Entry, parse_block
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.record import Block
from samovar.pool.disk.segment import Segment

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

NAMESPACE = b"fault run"
RECORD_BYTES = 16_384
CAPACITY_BYTES = 8 << 20
SEGMENT_BYTES = 128 << 10
WRITERS = 2
READERS = 2
SABOTEUR = WRITERS + READERS
BROKEN = 3
"""Exit code when a thread raised."""


class KilledFiles(OsFiles):
    """Before a certain one of the calls that change files, or in the middle of it, this process is killed."""

    def __init__(self, calls: int, rng: random.Random, state: State) -> None:
        super().__init__(hashed_from_bytes=RECORD_BYTES)
        self._left = calls
        self._rng = rng
        self._state = state

    def _spend(self) -> bool:
        self._left -= 1
        return self._left <= 0

    def _killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> int:
        if create and self._spend():
            self._killed()
        return super().open(path, create=create, direct=direct)

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], offset: int) -> int:
        if self._spend():
            whole = b"".join(bytes(buffer) for buffer in buffers)
            # Through the page cache, since a direct descriptor takes whole sectors only.
            cached = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
            os.pwrite(cached, whole[: self._rng.randrange(len(whole))], offset)
            self._state.count(SABOTEUR, "torn_writes")
            self._killed()
        return super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        if self._spend():
            self._killed()
        super().sync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        if self._spend():
            self._killed()
        super().truncate(fd, size_bytes)

    def punch(self, fd: int, offset: int, num_bytes: int) -> None:
        if self._spend():
            self._killed()
        super().punch(fd, offset, num_bytes)

    def remove(self, path: str) -> None:
        if self._spend():
            self._killed()
        super().remove(path)


def open_log(folder: Path, punching: bool, files: OsFiles | None = None, *, background: bool = True) -> DiskLog:
    return DiskLog.open(
        str(folder),
        NAMESPACE,
        RECORD_BYTES,
        CAPACITY_BYTES,
        segment_bytes=SEGMENT_BYTES,
        punching=punching,
        background=background,
        files=files,
    )


class Owner:
    """Writes and deletes the keys that leave `thread` when divided by the number of writers."""

    def __init__(self, log: DiskLog, state: State, thread: int, rng: random.Random) -> None:
        self._log = log
        self._state = state
        self._thread = thread
        self._rng = rng
        self._mine = range(thread, state.num_keys, WRITERS)
        self._forgotten: list[int] = []
        """Deleted, but no commit has made that durable."""

    def run(self) -> None:
        while True:
            free = [n for n in self._mine if n not in self._forgotten]
            refused = self._write(self._rng.sample(free, self._rng.randrange(1, 9)))
            if refused or self._rng.random() < 0.4:
                self._delete(0.15 if refused else 0.02)
            time.sleep(0.001)  # Else the saboteur never gets the lock.

    def _write(self, batch: list[int]) -> int:
        """How many were refused."""
        state = self._state
        before = {n: int(state.version[n]) for n in batch}
        versions = {n: int(state.highest[n]) + 1 for n in batch}
        for n in batch:
            state.begin(n, versions[n])
        blocks = [Block(key_of(n), key_of(0), f"stream {n % 7}", data_of(n, versions[n])) for n in batch]
        outcomes = self._log.write(blocks)
        good = [n for n, outcome in zip(batch, outcomes, strict=True) if outcome == "ok"]
        for n in batch:
            state.end(n, versions[n] if n in good else before[n])
        if good:
            self._now_durable()
        self._count("unexpected", sum(outcome not in ("ok", "full") for outcome in outcomes))
        self._count("writes", 1)
        self._count("written", len(good))
        self._count("overwritten", sum(before[n] != MISSING for n in good))
        self._count("refused", len(batch) - len(good))
        return len(batch) - len(good)

    def _delete(self, share: float) -> None:
        chosen = [n for n in self._mine if self._state.version[n] != MISSING and self._rng.random() < share]
        chosen = [n for n in chosen if n not in self._forgotten]
        for n in chosen:
            self._state.begin(n, MISSING)
        self._log.delete([key_of(n) for n in chosen])
        for n in chosen:
            self._state.pause(n)
        self._forgotten += chosen
        self._count("deleted", len(chosen))
        if self._rng.random() < 0.5:
            self._count("unexpected", int(self._log.flush() != "ok"))
            self._now_durable()

    def _now_durable(self) -> None:
        for n in self._forgotten:
            self._state.end(n, MISSING)
        self._forgotten = []

    def _count(self, name: str, number: int) -> None:
        self._state.count(self._thread, name, number)


def read_on(log: DiskLog, state: State, thread: int, rng: random.Random) -> None:
    memory = np.zeros((8, RECORD_BYTES + BLOCK_BYTES), np.uint8)
    aligned = [row[(-row.ctypes.data) % BLOCK_BYTES :][:RECORD_BYTES] for row in memory]
    anywhere = [row[:RECORD_BYTES] for row in memory]
    while True:
        first = rng.randrange(state.num_keys)
        near = [(first + n) % state.num_keys for n in range(rng.randrange(1, 9))]
        batch = near if rng.random() < 0.3 else rng.sample(range(state.num_keys), len(near))
        clocks = [int(state.clock[n]) for n in batch]
        expected = [int(state.version[n]) for n in batch]
        buffers = (aligned if rng.random() < 0.8 else anywhere)[: len(batch)]
        outcomes = log.read_many_into([key_of(n) for n in batch], buffers)
        for n, clock, version, outcome, buffer in zip(batch, clocks, expected, outcomes, buffers, strict=True):
            settled = clock % 2 == 0 and state.clock[n] == clock
            found = MISSING
            if outcome == "ok":
                got = version_in(n, buffer[: size_of(n)].tobytes())
                if got is None or got > state.highest[n] or (got < version and not state.revived[n]):
                    state.count(thread, "wrong_bytes")
                    continue
                found = got
            elif outcome != "missing":
                state.count(thread, "read_damaged")
            if settled and found != version:
                wrong = state.allowed(n, found)
                if wrong and state.clock[n] == clock:
                    state.count(thread, wrong)
            state.count(thread, "read_ok" if outcome == "ok" else "read_missing")
        state.count(thread, "reads", len(batch))


def sabotage(log: DiskLog, state: State, rng: random.Random) -> None:
    """Between commits, not inside them: what is being written has not been acknowledged, and may be damaged unseen."""
    while True:
        time.sleep(rng.uniform(0.003, 0.03))
        state.at_most(SABOTEUR, "most_believed_bytes", log.stats().physical_bytes)
        with log._lock:
            segments = log._index.segments()
            if segments:
                act = cut if rng.random() < 0.03 else rng.choice((flip_record, flip_record, flip_other))
                act(log, state, rng.choice(segments), rng)


def flip_record(log: DiskLog, state: State, segment: Segment, rng: random.Random) -> None:
    """A bit of a live record, in its header, payload or filling."""
    live = log._index.live(segment)
    if live:
        entry = rng.choice(live)
        if excuse(state, segment, entry):
            flip(state, segment, rng.randrange(entry.begin, entry.end), rng)


def flip_other(log: DiskLog, state: State, segment: Segment, rng: random.Random) -> None:
    """A bit of the superblock, of tombstones or of the footer: none of them costs a record. Places of dead records are
    left alone, they may be holes."""
    with open(segment.path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        block = rng.randrange(max(1, size // BLOCK_BYTES)) * BLOCK_BYTES
        text = os.pread(file.fileno(), BLOCK_BYTES, block)
    if any(entry.begin <= block < entry.end for entry in segment.entries):
        return
    parsed = parse_block(text, segment.binding, segment.number, block)
    for stone in parsed.tombstones if parsed else ():
        state.revived[int.from_bytes(stone.key, "big")] = 1
    if text:
        flip(state, segment, block + rng.randrange(len(text)), rng)


def flip(state: State, segment: Segment, at: int, rng: random.Random) -> None:
    fd = os.open(segment.path, os.O_RDWR)
    try:
        byte = os.pread(fd, 1, at)
        if byte:
            os.pwrite(fd, bytes([byte[0] ^ 1 << rng.randrange(8)]), at)
            state.count(SABOTEUR, "bit_flips")
    finally:
        os.close(fd)


def cut(log: DiskLog, state: State, segment: Segment, rng: random.Random) -> None:
    """Takes the end of a file away."""
    size = rng.randrange(os.stat(segment.path).st_size + 1)
    for entry in log._index.live(segment):
        if entry.end > size:
            excuse(state, segment, entry)
    for stone in segment.tombstones:
        state.revived[int.from_bytes(stone.key, "big")] = 1
    os.truncate(segment.path, size)
    state.count(SABOTEUR, "cut_segments")


def excuse(state: State, segment: Segment, entry: Entry) -> bool:
    """From now on this version of the key may be missing. False when it is damaged already."""
    number = int.from_bytes(entry.key, "big")
    with open(segment.path, "rb") as file:
        data = os.pread(file.fileno(), entry.num_bytes, entry.offset)
    version = version_in(number, data)
    if version is not None:
        state.damage(number, version)
    return version is not None


def main() -> None:
    folder, state_path, num_keys, seed, punching, calls = sys.argv[1:]
    rng = random.Random(int(seed))
    state = State(Path(state_path), int(num_keys))
    log = open_log(Path(folder), punching == "punching", KilledFiles(int(calls), rng, state))
    bodies: list[Callable[[], None]] = [
        *(Owner(log, state, n, random.Random(rng.random())).run for n in range(WRITERS)),
        *(partial(read_on, log, state, WRITERS + n, random.Random(rng.random())) for n in range(READERS)),
        partial(sabotage, log, state, random.Random(rng.random())),
    ]
    for body in bodies:
        threading.Thread(target=guarded, args=(body,), daemon=True).start()
    signal.pause()


def guarded(body: Callable[[], None]) -> None:
    try:
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(BROKEN)


if __name__ == "__main__":
    main()
