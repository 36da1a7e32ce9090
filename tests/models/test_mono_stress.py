"""10,000 mono steps, a prefill before each, while three other processes want the same cores: no hang, no wrong bit, and
the watchdog stays silent. About 15 s beside them on two cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels
from tests.models.oracle import batch_of, save_tiny, some_ids
import torch
from torch import Tensor

from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import load_packed_model, new_tiled_cache
from samovar.models.locate import locate
from samovar.models.mono import MonoLlama
from samovar.models.packed_llama import PackedLlama

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 600,
}
MONO_STEPS = 40
"""Of a round."""
ROUNDS = 250
NUM_BUSY = 3
NUM_ROWS, ROW_BLOCKS = 4, 36
DEPTHS = (3, 40, 255, 300, 530)
"""Contexts before, at and behind the edges of attention's chunks: of one to three chunks."""
HUNG_S = 300.0
"""Longer than anything but a hang takes; a wait of a mono step ends by its watchdog after 30 s."""


def one_round() -> list[ForwardBatch]:
    """Writes whole contexts, then alternates: a prefill that rewrites the end of one row's context, a mono step of one
    to four rows at another depth. It reads only what it wrote, so every round gives the same bits."""
    tables = [list(range(row * ROW_BLOCKS, (row + 1) * ROW_BLOCKS)) for row in range(NUM_ROWS)]
    batches = [batch_of([(some_ids(ROW_BLOCKS * 16, seed=row), 0, table)], 16) for row, table in enumerate(tables)]
    for number in range(MONO_STEPS):
        depth = DEPTHS[number % len(DEPTHS)] + number // len(DEPTHS)
        count = min(2 + number % 9, depth)
        prefilled = tables[number % NUM_ROWS]
        rows = [(some_ids(1, seed=number + row), depth, tables[row]) for row in range(1 + number // 3 % NUM_ROWS)]
        batches.append(batch_of([(some_ids(count, seed=number), depth - count, prefilled)], 16))
        batches.append(batch_of(rows, 16))
    return batches


@contextmanager
def busy_processes() -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NUM_BUSY)]
    try:
        time.sleep(0.3)
        yield
        assert all(other.poll() is None for other in others)
    finally:
        for other in others:
            other.kill()
            other.wait()


def load(folder: Path, isa: str) -> tuple[PackedLlama, KVCache]:
    save_tiny(folder, **SIZES)
    model = load_packed_model(locate(str(folder), folder.parent), native(isa, threads=2), "auto", 600)
    return model, new_tiled_cache(model.spec, NUM_ROWS * ROW_BLOCKS, 16)


class Worker(threading.Thread):
    """Runs the rounds, and stays behind when they hang: the test goes on to say so."""

    def __init__(self, mono: MonoLlama, cache: KVCache, wanted: list[Tensor]) -> None:
        super().__init__(daemon=True)
        self._mono, self._cache, self._wanted = mono, cache, wanted
        self.mono_steps = 0
        self.wrong: list[str] = []
        self.error: Exception | None = None

    def run(self) -> None:
        batches = one_round()
        try:
            for number in range(ROUNDS):
                for at, (batch, wanted) in enumerate(zip(batches, self._wanted, strict=True)):
                    self.mono_steps += self._mono.takes(batch)
                    if not torch.equal(self._mono.forward(batch, self._cache), wanted):
                        self.wrong.append(f"step {at} of round {number}")
        except Exception as error:  # the watchdog's, or whatever else ends a step
            self.error = error


@pytest.mark.parametrize("isa", native_levels()[:1])
def test_no_hang_and_no_wrong_bit_beside_busy_processes(isa: str, tmp_path: Path) -> None:
    model, cache = load(tmp_path, isa)
    mono, batches = MonoLlama(model, cache), one_round()
    wanted = [mono.forward(batch, cache) for batch in batches]
    assert sum(map(mono.takes, batches)) == MONO_STEPS
    assert all(torch.equal(a, model.forward(batch, cache)) for a, batch in zip(wanted, batches, strict=True))
    worker = Worker(mono, cache, wanted)
    with busy_processes():
        worker.start()
        worker.join(HUNG_S)
        assert not worker.is_alive(), f"hung after {worker.mono_steps} mono steps"
    assert worker.error is None and not worker.wrong
    assert worker.mono_steps == ROUNDS * MONO_STEPS == 10_000
