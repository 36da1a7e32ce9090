"""The disk log's part of `samovar bench kv`: verified reads and durable writes beside plain O_DIRECT calls on a plain
file of the same size in the same folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import shutil
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from samovar.base.errors import ConfigError
from samovar.bench.compute.timing import alternate
from samovar.bench.kv_figures import KVFigure, figures_of
from samovar.bench.kv_team import Team
from samovar.kernels.cpu.pages import zeroed
from samovar.pool.arena import ALIGNMENT_BYTES, slot_stride_bytes
from samovar.pool.disk.log import DiskLog
from samovar.pool.disk.record import Block

Bytes = NDArray[np.uint8]

READ, PLAIN_READ = "read", "O_DIRECT pread"
READ_RUN, PLAIN_RUN = "read, 8 neighbours", "O_DIRECT pread of 8"
WRITE, PLAIN_WRITE = "write, one commit", "O_DIRECT pwrite and fdatasync"
TARGET = 0.85
"""Of reads."""
RUN_BLOCKS = 8
SAMPLE_BYTES = 64 << 20
COMMIT_BYTES = 32 << 20
CAPACITY_BYTES = 64 << 30
"""Of the logs, which need not be there: segments are a share of it, and beginning one costs a commit some syncs."""
SPARE_BYTES = 256 << 20
"""What is left free on the disk."""
_NAMESPACE = b"bench"


def measure_disk(
    folder: Path, block_bytes: int, threads: Sequence[int], repeats: int, data_bytes: int, seed: int
) -> list[KVFigure]:
    """Raises ConfigError for a folder where it cannot be measured."""
    count = max(RUN_BLOCKS, data_bytes // block_bytes)
    with _space(folder, _needed_bytes(count, block_bytes, repeats)) as inside:
        with _plain_file(inside / "plain", count, block_bytes, seed) as plain:
            log = _filled_log(inside / "log", count, block_bytes, seed)
            try:
                figures = []
                for each in threads:
                    figures += _reads(log, plain, count, block_bytes, each, repeats, seed)
            finally:
                log.close()
        return figures + _writes(inside, _commit_blocks(count, block_bytes), block_bytes, repeats, seed)


def _reads(
    log: DiskLog, plain: int, count: int, block_bytes: int, threads: int, repeats: int, seed: int
) -> list[KVFigure]:
    stride = slot_stride_bytes(block_bytes)
    order = np.random.default_rng(seed).permutation(count)[: max(1, SAMPLE_BYTES // stride)]
    runs = np.unique(order // RUN_BLOCKS)
    runs = runs[(runs + 1) * RUN_BLOCKS <= count]
    memory = [zeroed(RUN_BLOCKS * stride) for _ in range(threads)]

    def read(blocks: int) -> Callable[[int, list[int]], None]:
        def work(thread: int, numbers: list[int]) -> None:
            buffers = [memory[thread][n * stride : n * stride + block_bytes].data for n in range(blocks)]
            for number in numbers:
                names = [_key(number * blocks + n) for n in range(blocks)]
                outcomes = log.read_many_into(names, buffers)
                assert set(outcomes) == {"ok"}, f"block {number}: {outcomes}"

        return work

    def pread(blocks: int) -> Callable[[int, list[int]], None]:
        def work(thread: int, numbers: list[int]) -> None:
            buffer = memory[thread][: blocks * stride].data
            for number in numbers:
                got = os.preadv(plain, [buffer], number * blocks * stride)
                assert got == buffer.nbytes, f"{got} bytes at block {number}"

        return work

    figures = []
    with Team(threads) as team:
        for what, beside, items, blocks in ((READ, PLAIN_READ, order, 1), (READ_RUN, PLAIN_RUN, runs, RUN_BLOCKS)):
            sides = [team.each(items, pread(blocks)), team.each(items, read(blocks))]
            timings = dict(zip((beside, what), alternate(sides, repeats), strict=True))
            moved = len(items) * blocks
            figures += figures_of(timings, beside, block_bytes, threads, moved, {what: TARGET})
    return figures


def _writes(inside: Path, count: int, block_bytes: int, repeats: int, seed: int) -> list[KVFigure]:
    """Commits of `count` blocks. Every sample writes others, so that nothing is overwritten and no compaction runs
    beside."""
    stride, samples = slot_stride_bytes(block_bytes), _samples(repeats)
    data = _contents(count, block_bytes, seed)
    payloads = [data[n * stride : n * stride + block_bytes].data for n in range(count)]
    log = DiskLog.open(str(inside / "writes"), _NAMESPACE, block_bytes, CAPACITY_BYTES)
    fd = _direct(inside / "plain-writes", os.O_WRONLY | os.O_CREAT)
    written = [0, 0]

    def commit() -> None:
        first = written[0] % samples * count
        written[0] += 1
        outcomes = log.write([Block(_key(first + n), b"", "bench", payload) for n, payload in enumerate(payloads)])
        assert set(outcomes) == {"ok"}, outcomes

    def plain() -> None:
        at = written[1] % samples * data.size
        written[1] += 1
        assert os.pwrite(fd, data.data, at) == data.size
        os.fdatasync(fd)

    try:
        timings = dict(zip((PLAIN_WRITE, WRITE), alternate([plain, commit], repeats), strict=True))
    finally:
        os.close(fd)
        log.close()
    return figures_of(timings, PLAIN_WRITE, block_bytes, 1, count, {})


def _filled_log(folder: Path, count: int, block_bytes: int, seed: int) -> DiskLog:
    log = DiskLog.open(str(folder), _NAMESPACE, block_bytes, CAPACITY_BYTES)
    step, stride = _commit_blocks(count, block_bytes), slot_stride_bytes(block_bytes)
    data = _contents(step, block_bytes, seed)
    for first in range(0, count, step):
        wanted = range(min(step, count - first))
        records = [
            Block(_key(first + n), b"", "bench", data[n * stride : n * stride + block_bytes].data) for n in wanted
        ]
        outcomes = log.write(records)
        if set(outcomes) != {"ok"}:
            log.close()
            raise ConfigError(f"--disk: writing {block_bytes} byte blocks ended with {sorted(set(outcomes))}")
    return log


@contextmanager
def _plain_file(path: Path, count: int, block_bytes: int, seed: int) -> Iterator[int]:
    step, stride = _commit_blocks(count, block_bytes), slot_stride_bytes(block_bytes)
    data = _contents(step, block_bytes, seed)
    fd = _direct(path, os.O_RDWR | os.O_CREAT)
    try:
        for first in range(0, count, step):
            part = data[: min(step, count - first) * stride]
            if os.pwrite(fd, part.data, first * stride) != part.size:
                raise ConfigError(f"--disk: {path.parent} took only a part of a write")
        os.fsync(fd)
        yield fd
    finally:
        os.close(fd)


def _direct(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"--disk: {path.parent} does not take O_DIRECT: {error.strerror}", param="disk") from error


@contextmanager
def _space(folder: Path, needed_bytes: int) -> Iterator[Path]:
    """A folder in it for the time being."""
    try:
        free = shutil.disk_usage(folder).free
        if free < needed_bytes + SPARE_BYTES:
            raise ConfigError(
                f"--disk: {needed_bytes / 1e9:.1f} GB are needed in {folder}, {free / 1e9:.1f} GB are free",
                param="disk",
            )
        with TemporaryDirectory(dir=folder, prefix="samovar-bench-") as inside:
            yield Path(inside)
    except OSError as error:
        raise ConfigError(f"--disk: {folder}: {error.strerror or error}", param="disk") from error


def _needed_bytes(count: int, block_bytes: int, repeats: int) -> int:
    """Of two files that are read and two that are written."""
    blocks = count + _commit_blocks(count, block_bytes) * _samples(repeats)
    return 2 * blocks * (slot_stride_bytes(block_bytes) + ALIGNMENT_BYTES)


def _samples(repeats: int) -> int:
    """How often `alternate` runs something that takes more than a millisecond: twice before it measures."""
    return repeats + 2


def _commit_blocks(count: int, block_bytes: int) -> int:
    """Of one commit, when there are `count` in all."""
    return max(1, min(count, COMMIT_BYTES // slot_stride_bytes(block_bytes)))


def _contents(count: int, block_bytes: int, seed: int) -> Bytes:
    """Blocks at multiples of their stride."""
    memory = zeroed(count * slot_stride_bytes(block_bytes))
    memory[:] = np.random.default_rng(seed).integers(0, 256, memory.size, dtype=np.uint8)
    return memory


def _key(number: int) -> bytes:
    return number.to_bytes(16, "little")
