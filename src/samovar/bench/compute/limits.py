"""Measures what this machine can do at best, in the same run as what is compared with it."""

from __future__ import annotations

from pathlib import Path
import time

import numpy as np
import torch

from samovar.bench.compute.bounds import Kind, MachineLimits, Peak
from samovar.bench.compute.timing import Run, measure
from samovar.kernels.cpu.native_library import NativeLibrary
from samovar.kernels.cpu.native_limits import NativeLimits
from samovar.runner.memory import available_memory_bytes

REPEATS = 5
SMALLEST_ARRAY_BYTES = 1 << 30
AGAIN_BYTES = 96 << 20
GEMM_SIZE = 2048
PEAK_SAMPLE_S = 0.02
LARGEST_ROUNDS = 1 << 24


def measure_limits(library: NativeLibrary, isa: str, threads: int) -> MachineLimits:
    """Sets the number of torch's threads. Best of several: a limit is what was reached once."""
    torch.set_num_threads(threads)
    team, alone = NativeLimits(isa, threads), NativeLimits(isa, 1)
    data = np.ones(array_bytes(last_level_cache_bytes(), available_memory_bytes()), dtype=np.uint8)
    again = data[: min(AGAIN_BYTES, len(data))]
    best_isa = isa == library.isa_levels[0]
    kinds: tuple[Kind, ...] = ("bf16", "int8")
    return MachineLimits(
        isa=isa,
        threads=threads,
        read_bytes_per_s=len(data) / _best(lambda: team.read_all(data)),
        read_one_thread_bytes_per_s=len(data) / _best(lambda: alone.read_all(data)),
        read_array_bytes=len(data),
        read_again_bytes_per_s=len(again) / _best(lambda: team.read_all(again)),
        read_again_array_bytes=len(again),
        peaks={kind: Peak(_kernel_peak(team, kind), _torch_peak(kind) if best_isa else None) for kind in kinds},
    )


def array_bytes(cache_bytes: int | None, free_bytes: int | None) -> int:
    """Four times the last-level cache, a GiB at least; never more than a quarter of free memory."""
    wanted = max(SMALLEST_ARRAY_BYTES, 4 * (cache_bytes or 0))
    return wanted if free_bytes is None else max(1 << 20, min(wanted, free_bytes // 4))


def last_level_cache_bytes() -> int | None:
    """None where the system does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes, default=None)


def _best(run: Run) -> float:
    return measure(run, REPEATS).best_s


def _kernel_peak(team: NativeLimits, kind: Kind) -> float:
    rounds = 1 << 10
    while rounds < LARGEST_ROUNDS:
        begin = time.perf_counter()
        team.multiply(kind == "int8", rounds)
        if time.perf_counter() - begin >= PEAK_SAMPLE_S:
            break
        rounds *= 2
    operations = team.multiply(kind == "int8", rounds)
    return operations / _best(lambda: team.multiply(kind == "int8", rounds))


def _torch_peak(kind: Kind) -> float:
    size = (GEMM_SIZE, GEMM_SIZE)
    if kind == "int8":
        a, b = (torch.randint(-127, 127, size, dtype=torch.int8) for _ in range(2))
        seconds = _best(lambda: torch._int_mm(a, b))
    else:
        c, d = (torch.randn(size).to(torch.bfloat16) for _ in range(2))
        seconds = _best(lambda: torch.mm(c, d))
    return 2 * GEMM_SIZE**3 / seconds
