"""Pages are there before a step writes them: idle time is used, and a step in need does not wait for it."""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest
import torch

from samovar.base.ids import BlockId, RequestId, TransferId
from samovar.core.plan import Chunk, Load, StepPlan
from samovar.kernels.cpu.pages import HUGE_PAGE_BYTES, populate, zeroed
from samovar.models.batch import KVCache
from samovar.runner.local import _highest_block
from samovar.runner.prefault import Prefault

pytestmark = pytest.mark.torch

BLOCK_BYTES = 64 << 10
STEP_BLOCKS = HUGE_PAGE_BYTES // BLOCK_BYTES
NUM_BLOCKS = 16 * STEP_BLOCKS


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _pool(layers: int = 2) -> KVCache:
    arrays = [zeroed(NUM_BLOCKS * BLOCK_BYTES).reshape(NUM_BLOCKS, BLOCK_BYTES) for _ in range(2 * layers)]
    tensors = tuple(torch.from_numpy(array) for array in arrays)
    pairs = tuple(zip(arrays[::2], arrays[1::2], strict=True))
    return KVCache(tensors[::2], tensors[1::2], 16, pairs)


def _until(prefault: Prefault, blocks: int) -> None:
    deadline = time.monotonic() + 20
    while prefault.num_populated < blocks and time.monotonic() < deadline:
        time.sleep(0.005)
    assert prefault.num_populated >= blocks


def test_populated_pages_keep_their_content_and_need_no_fault() -> None:
    memory = zeroed(8 << 20)
    memory[5 << 20] = 7
    if not populate(memory, 100, (8 << 20) - 100):
        pytest.skip("this system cannot bring pages in ahead")
    before = _faults()
    memory[::4096] += 1
    assert _faults() - before < 8 and memory[5 << 20] == 8 and int(memory[4096]) == 1
    assert populate(memory, 0, 1) and populate(memory, (8 << 20) - 1, 8 << 20)


def test_runs_ahead_while_idle_and_stops() -> None:
    pool = _pool()
    ahead = 3 * STEP_BLOCKS
    prefault = Prefault(pool, ahead_tokens=ahead * 16)
    try:
        _until(prefault, ahead)
        time.sleep(0.05)
        assert prefault.num_populated == ahead
        prefault.step(STEP_BLOCKS)
        prefault.idle()
        _until(prefault, STEP_BLOCKS + 1 + ahead)
        assert not any(array[:, ::4096].any() for pair in pool.tiles for array in pair)
        before = _faults()
        for pair in pool.tiles:
            for array in pair:
                array[:ahead, ::4096] = 1
        assert _faults() - before < 8
    finally:
        prefault.close()


def test_a_busy_runner_gets_only_what_it_is_about_to_need() -> None:
    prefault = Prefault(_pool(), ahead_tokens=8 * STEP_BLOCKS * 16)
    try:
        prefault.step(5 * STEP_BLOCKS - 1)
        _until(prefault, 6 * STEP_BLOCKS)
        done = prefault.num_populated
        time.sleep(0.05)
        assert prefault.num_populated == done <= 9 * STEP_BLOCKS
        prefault.idle()
        _until(prefault, 13 * STEP_BLOCKS)
    finally:
        prefault.close()


def test_ends_at_the_last_block_and_with_its_owner() -> None:
    prefault = Prefault(_pool(1), ahead_tokens=10**9)
    _until(prefault, NUM_BLOCKS)
    prefault.step(NUM_BLOCKS - 1)
    prefault.idle()
    prefault.close()
    assert prefault.num_populated == NUM_BLOCKS


def test_pools_of_other_kinds_are_left_alone() -> None:
    tensors = (torch.zeros(4, 16, 1, 8),)
    prefault = Prefault(KVCache(tensors, tensors, 16))
    prefault.step(3)
    prefault.idle()
    prefault.close()
    assert prefault.num_populated == 0 and np.all(tensors[0].numpy() == 0)


def test_blocks_that_a_plan_loads_into_count_as_in_use() -> None:
    """Whoever loads writes their pages; what the next step needs lies above them."""
    load = Load(TransferId(0), 0, (b"k" * 16,) * 3, tuple(map(BlockId, (4, 90, 7))))
    chunk = Chunk(RequestId(1), 0, 16, ((BlockId(12),),))
    assert _highest_block(StepPlan(0, (chunk,), loads=(load,))) == 90
    assert _highest_block(StepPlan(0, (chunk,))) == 12
    assert _highest_block(StepPlan(0)) == -1
