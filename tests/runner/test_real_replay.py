"""The log of a real run, SmolLM2 under a mixed load by the wall clock, gives the same plans in a fresh core."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
import random

import pytest

pytest.importorskip("torch")
from tests.runner.test_process import collect, request

from samovar.base.errors import SamovarError
from samovar.base.ids import RequestId
from samovar.core.calls import Call, LogHeader, Plan
from samovar.core.replay import replay
from samovar.runner.call_log import read_call_log
from samovar.runner.client import EngineClient
from samovar.runner.config import EngineProcessConfig
from samovar.runner.retention import policy_of

pytestmark = [pytest.mark.torch, pytest.mark.model, pytest.mark.slow]

MIN_STEPS = 500


@pytest.mark.parametrize("depth", [1, 2])
async def test_at_least_500_steps(smollm2_gguf: Path, tmp_path: Path, depth: int) -> None:
    """Sessions with turns, a pool too small for all of them, and clients that go away."""
    path = tmp_path / "calls"
    config = EngineProcessConfig(
        model=str(smollm2_gguf), cache_dir=str(smollm2_gguf.parent), num_threads=1, depth=depth, block_size=8,
        num_gpu_blocks_override=40, max_model_len=256, max_num_batched_tokens=48, max_num_seqs=3,
        record_path=str(path),
    )  # fmt: skip
    engine = await EngineClient.start(config)
    rng = random.Random(depth)
    numbers = iter(range(1_000_000))

    async def agent() -> None:
        history = [rng.randrange(20, 40_000) for _ in range(30)]
        while (await engine.stats()).steps < MIN_STEPS:
            number = next(numbers)
            stream = await engine.submit(request(engine, number, history, max_tokens=rng.randrange(10, 60)))
            if number % 6 == 5:
                await anext(stream)
                engine.finish(RequestId(number), 1)
                continue
            made, _ = await collect(stream)
            history = (history + made + [rng.randrange(20, 40_000)] * 5)[-150:]

    try:
        await asyncio.gather(*(agent() for _ in range(5)))
        await engine.check()
        stats = await engine.stats()
    finally:
        await engine.close()
    header, *calls = read_call_log(path)
    assert isinstance(header, LogHeader)
    plans = replay(header, (call for call in calls if isinstance(call, Call)), policy_of(header))
    assert plans >= stats.steps >= MIN_STEPS
    assert stats.preemptions > 0 and stats.requests_finished.get("abort", 0) > 0

    # A check that could not fail would prove nothing: another pool gives other plans.
    other = LogHeader(replace(header.config, num_blocks=header.config.num_blocks + 8), header.policy)
    with pytest.raises(SamovarError, match="differs"):
        replay(other, (call for call in calls if isinstance(call, Call)), policy_of(header))
    assert sum(isinstance(call, Call) and isinstance(call.call, Plan) for call in calls) >= plans
