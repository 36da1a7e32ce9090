"""Up to how many rows a decode step gains from mono decode: measured once per host, model and setting, then kept.

The two paths give the same bits, so a wrong figure costs time and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
import platform
import tempfile
import time

import numpy as np
import torch

from samovar import __version__
from samovar.base.keys import digest
from samovar.kernels.rows import make_rows
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.mono import MAX_ROWS, MonoLlama
from samovar.models.packed_llama import PackedLlama

log = logging.getLogger(__name__)

PROBE_ROWS = (1, 2, 4, 8, 16, 32, MAX_ROWS)
PROBE_DEPTH = 63
"""Tokens before the decoded one: short, so that attention, which both paths share, does not hide the difference."""
_REPEATS = 5
_WORTH = 1.02
"""Mono may take this much longer than the normal path and still count as no slower: noise."""


def crossover_key(fingerprint: bytes, kind: str, isa: str, threads: int) -> str:
    """Names a host, a checkpoint and how it is computed, by which version of this package."""
    parts = (__version__, platform.machine(), _cpu_name(), isa, str(threads), kind)
    return digest((fingerprint, *(part.encode() for part in parts))).hex()


def load_crossover(folder: Path, key: str) -> int | None:
    """None when nothing usable was kept."""
    try:
        rows = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))["max_rows"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return rows if isinstance(rows, int) and 0 <= rows <= MAX_ROWS else None


def save_crossover(folder: Path, key: str, max_rows: int) -> None:
    """Whole or not at all. A folder that cannot be written costs a measurement at the next start, not the start."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            json.dump({"max_rows": max_rows}, file)
        os.replace(file.name, folder / f"{key}.json")
    except OSError as error:
        log.info("the measured limit of mono decode could not be kept in %s: %s", folder, error)


def measure_crossover(model: PackedLlama, scratch: KVCache) -> int:
    """The most rows, of `PROBE_ROWS`, up to which mono decode is never slower than the normal path; 0: always slower.

    Overwrites the scratch cache, which holds `scratch_tokens` at least.
    """
    mono = MonoLlama(model, scratch)
    found = 0
    for num_rows in PROBE_ROWS:
        if not _gains(mono, model, scratch, num_rows):
            break
        found = num_rows
    return found


def _gains(mono: MonoLlama, normal: PackedLlama, scratch: KVCache, num_rows: int) -> bool:
    """The verdict is kept for good, so a bad one is checked: with three times the repeats."""
    batch = _probe(num_rows, scratch.block_tokens)
    for repeats in (_REPEATS, 3 * _REPEATS):
        seconds: dict[str, list[float]] = {"mono": [], "normal": []}
        for _ in range(1 + repeats):
            for name, path in (("mono", mono), ("normal", normal)):
                begin = time.perf_counter()
                path.forward(batch, scratch)
                seconds[name].append(time.perf_counter() - begin)
        # The fastest of each: other work on the machine only ever makes a step slower.
        if min(seconds["mono"][1:]) <= _WORTH * min(seconds["normal"][1:]):
            return True
    return False


def scratch_blocks(block_tokens: int) -> int:
    return MAX_ROWS * _row_blocks(block_tokens)


def _row_blocks(block_tokens: int) -> int:
    return -(-(PROBE_DEPTH + 1) // block_tokens)


def _probe(num_rows: int, block_tokens: int) -> ForwardBatch:
    per_row = _row_blocks(block_tokens)
    tables = [np.arange(row * per_row, (row + 1) * per_row, dtype=np.int64) for row in range(num_rows)]
    slots = [row * per_row * block_tokens + PROBE_DEPTH for row in range(num_rows)]
    return ForwardBatch(
        token_ids=torch.zeros(num_rows, dtype=torch.int64),
        positions=torch.full((num_rows,), PROBE_DEPTH, dtype=torch.int64),
        slots=torch.tensor(slots, dtype=torch.int64),
        rows=make_rows([1] * num_rows, [PROBE_DEPTH] * num_rows, tables, block_tokens),
        logit_rows=torch.arange(num_rows),
    )


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
