"""Blocks that were loaded against blocks that were computed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from samovar.base.ids import BlockId, TransferId
from samovar.core.plan import Compare, StepPlan, StepResult
from samovar.kernels.cpu.pages import zeroed
from samovar.models.batch import KVCache
from samovar.runner.comparing import differing
from samovar.runner.local import LocalRunner

pytestmark = pytest.mark.torch

PAIRS = Compare(TransferId(5), 0, tuple(map(BlockId, (0, 1, 2))), tuple(map(BlockId, (3, 4, 5))))


def plain(dtype: torch.dtype) -> KVCache:
    """Two layers of six blocks, the second three equal to the first."""
    torch.manual_seed(1)
    half = [torch.randn(3, 4, 2, 8) for _ in range(4)]
    pools = tuple(torch.cat([pool, pool]).to(dtype) for pool in half)
    return KVCache(pools[::2], pools[1::2], 4)


def tiled(dtype: type) -> KVCache:
    arrays = [zeroed(6 * 4096).view(dtype).reshape(6, 1, -1) for _ in range(4)]
    for seed, array in enumerate(arrays):
        array[:3] = array[3:] = np.random.default_rng(seed).integers(0, 256, array[:3].shape)
    return KVCache((), (), 16, tuple(zip(arrays[::2], arrays[1::2], strict=True)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_up_to_rounding_on_pytorch(dtype: torch.dtype) -> None:
    cache = plain(dtype)
    assert differing(cache, PAIRS) == ()
    cache.values[1][4, 3, 1, 7] *= 1 + (2e-4 if dtype is torch.float32 else 8e-3)
    assert differing(cache, PAIRS) == (), "another order of adding"
    cache.values[1][4, 3, 1, 7] += 1.0
    cache.keys[0][5, 0, 0, 0] = float("nan")
    assert differing(cache, PAIRS) == (1, 2)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint8])
def test_to_the_bit_in_a_tiled_pool(dtype: type) -> None:
    cache = tiled(dtype)
    assert differing(cache, PAIRS) == ()
    cache.tiles[1][1][0, 0, -1] ^= 1
    assert differing(cache, PAIRS) == (0,)


class Model:
    class spec:
        vocab_size = 7


def test_a_runner_reports_comparisons_like_transfers() -> None:
    """Once each, also where they raise."""

    cache = plain(torch.float32)
    cache.keys[1][3] += 1.0
    runner = LocalRunner(Model(), cache)  # type: ignore[arg-type]
    outside = Compare(TransferId(6), 0, (BlockId(0),), (BlockId(99),))
    assert runner.submit(StepPlan(0, compares=(PAIRS, outside))).result() == StepResult(0)
    reports = runner.transfers()
    assert [(done.transfer_id, done.failed) for done in reports] == [(5, (0,)), (6, (0,))]
    assert not runner.transfers()
    runner.close()
