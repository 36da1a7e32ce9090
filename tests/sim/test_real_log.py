"""What a real engine process did, fed to the simulator's driver: the same requests at the same times, results when they
came, and every plan must be the one that the real driver got."""

from __future__ import annotations

import asyncio
from pathlib import Path
import random

import msgspec
import pytest

pytest.importorskip("torch")
from samovar.core.calls import Advance, Apply, Call, LogHeader, Plan, Submit
from samovar.core.plan import StepPlan
from samovar.core.replay import Recorder
from samovar.runner.call_log import read_call_log
from samovar.runner.client import EngineClient
from samovar.runner.retention import policy_of
from samovar.sim.group import Group
from samovar.sim.live import Live
from samovar.sim.rank import Rank
from samovar.sim.tally import StepTally
from samovar.workload.replay import Launch
from tests.runner.conftest import Tiny, tiny  # noqa: F401
from tests.runner.test_process import collect, config, request
from tests.sim.runs import Steps, lone_call

pytestmark = pytest.mark.torch


def plans_of(calls: list[Call]) -> list[tuple]:
    """All that a plan says but for the tokens, whose values a simulation does not have."""
    decoded = [
        msgspec.msgpack.decode(call.answer, type=StepPlan | None) for call in calls if isinstance(call.call, Plan)
    ]
    return [
        (plan.step, plan.chunks, [start.request_id for start in plan.starts], plan.released)
        for plan in decoded
        if plan is not None
    ]


def live_of(call: Submit) -> Live:
    made, number = call.request, call.request.id
    script = lone_call(str(number), len(made.token_ids) // 4, made.sampling.max_tokens)
    launch = Launch(number, 0, 0, 0, script, script.calls[0], "profile", call.now, made.sampling.max_tokens)
    return Live(number, launch, made.keys, 0, len(made.token_ids) // 4, call.now, 0.0)


def follow(header: LogHeader, calls: list[Call], *, fast_forward: bool) -> tuple[list[Call], Rank]:
    """Drives a rank by the log's times: its own plans, and none of the log's."""
    made: list[Call] = []
    core = Recorder(header.config, policy_of(header), sink=made.append)
    rank = Rank(0, core, None, 1.0, lambda live, now: None)
    group = Group([rank], Steps(lambda shape: 1.0), StepTally(), fast_forward=fast_forward)
    asked = False
    for call in (call.call for call in calls):
        if isinstance(call, Submit):
            assert rank.submit(live_of(call), "", "", call.now).error is None
        elif isinstance(call, Apply):
            if group.step_ends_s is None:  # two results came at once
                group.begin_step(call.now)
            group.end_step(call.now)
            if rank.is_coasting:
                group.plan([rank], call.now)
        elif isinstance(call, Plan) and not asked and not rank.is_coasting:
            group.plan([rank], call.now)
        if isinstance(call, Plan) and not asked and group.step_ends_s is None:
            group.begin_step(call.now)
        asked = isinstance(call, Plan)
    rank.catch_up()
    return made, rank


@pytest.mark.parametrize("depth", [1, 2])
async def test_the_drivers_plans_are_the_real_ones(tiny: Tiny, tmp_path: Path, depth: int) -> None:  # noqa: F811
    """Twenty requests that come while others run, in a pool that holds a few of them."""
    path, rng = tmp_path / "calls", random.Random(depth)
    settings = config(
        tiny, record_path=str(path), depth=depth, max_num_batched_tokens=24, max_num_seqs=4, max_model_len=128,
        num_gpu_blocks_override=20,
    )  # fmt: skip
    engine = await EngineClient.start(settings)
    try:

        async def one(number: int) -> None:
            await asyncio.sleep(rng.random() * 0.4)
            prompt = [7] * 16 + [rng.randrange(101) for _ in range(rng.randrange(3, 40))]
            await collect(await engine.submit(request(engine, number, prompt, max_tokens=rng.randrange(1, 40))))

        await asyncio.gather(*(one(number) for number in range(20)))
        stats = await engine.stats()
    finally:
        await engine.close()
    header, *calls = read_call_log(path)
    assert isinstance(header, LogHeader)
    real = [call for call in calls if isinstance(call, Call)]
    made, rank = follow(header, real, fast_forward=False)
    assert len(plans_of(real)) > 50 and plans_of(made) == plans_of(real)
    assert rank.engine.stats().steps == stats.steps and stats.evicted_blocks > 0
    leapt, faster = follow(header, real, fast_forward=True)
    assert any(isinstance(call.call, Advance) for call in leapt)
    assert not faster.engine.has_work and faster.engine.stats().generation_tokens == stats.generation_tokens
