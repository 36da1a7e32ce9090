"""Logs of a real engine and of a simulated one under the same sessions: each gives its plans in a core made as the
simulator makes it, and where plans do not depend on time, both logs have the same ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
from samovar.base.errors import ReplayMismatch
from samovar.base.ids import RequestId
from samovar.base.keys import extend_keys, join_keys, pack_tokens, root_key
from samovar.cli.app import app
from samovar.core.calls import Call, LogHeader, Plan
from samovar.core.config import EngineConfig
from samovar.core.plan import StepPlan
from samovar.core.replay import Recorder, replay
from samovar.core.request import Request
from samovar.core.sampling import SamplingParams
from samovar.core.stats import EngineStats
from samovar.runner.call_log import CallLog, read_call_log
from samovar.runner.client import EngineClient
from samovar.runner.retention import policy_of
from samovar.sim.run import Simulation
from samovar.sim.settings import FrontEnd, SimSettings
from samovar.workload.prompts import TokenRange
from samovar.workload.prompts_maker import PromptMaker
from samovar.workload.replay import Launch, Replay, ReplayConfig
from samovar.workload.replay_script import Script, script_of
from samovar.workload.session import SessionTree, Stream, Turn
from tests.runner.conftest import VOCAB, Tiny, tiny  # noqa: F401
from tests.runner.test_process import BLOCK, collect, config
from tests.sim.runs import Steps

pytestmark = pytest.mark.torch

TRACE_BLOCK = 16
STEPS = Steps(lambda shape: 0.01 + 1e-4 * shape.prefill_tokens)


def session(name: str, turns: int, first: int, added: int) -> Script:
    """One agent whose every prompt goes on from the one before; the first third is every session's."""
    made = []
    for turn in range(turns):
        blocks = np.arange(first + turn * added, dtype=np.int64)
        blocks[first // 3 :] += 1000 * len(name)
        made.append(Turn(turn, turn + 0.5, len(blocks) * TRACE_BLOCK + 5, 3 + turn, blocks))
    return script_of(SessionTree(name, TRACE_BLOCK, (Stream("main", "main", tuple(made)),), "together"))


SCRIPTS = [session("a", 4, 3, 2), session("bb", 3, 4, 1), session("ccc", 3, 3, 1)]


def rules(lanes: int) -> ReplayConfig:
    return ReplayConfig(lanes, start_from=0.0, start_to=0.0, time_scale=0.0, max_visits=6)


async def replay_for_real(engine: EngineClient, lanes: int) -> EngineStats:
    """As the benchmark does it, without HTTP."""
    plays, maker = Replay(SCRIPTS, rules(lanes)), PromptMaker(TokenRange(3, VOCAB), run="real", point="1")
    root, clock = root_key(engine.info.namespace), asyncio.get_running_loop().time
    running: dict[asyncio.Task, Launch] = {}
    while not plays.finished:
        for launch in plays.due(clock()):
            tokens = pack_tokens(maker.prompt(launch).tolist())
            sampling = SamplingParams(max_tokens=launch.output_tokens, temperature=0.0)
            keys = join_keys(extend_keys(root, tokens, BLOCK))
            made = Request(
                RequestId(launch.id), tokens, sampling, root, keys, session_id=f"{launch.lane}-{launch.visit}"
            )
            running[asyncio.create_task(collect(await engine.submit(made)))] = launch
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            assert len(task.result()[0]) == running[task].output_tokens
            plays.completed(running.pop(task).id, clock())
    return await engine.stats()


async def real_log(tiny: Tiny, path: Path, lanes: int, depth: int) -> tuple[LogHeader, list[Call], EngineStats]:  # noqa: F811
    settings = config(
        tiny, record_path=str(path), depth=depth, max_num_batched_tokens=32, num_gpu_blocks_override=40,
        max_model_len=200, retention_policy="lru",
    )  # fmt: skip
    engine = await EngineClient.start(settings)
    try:
        stats = await replay_for_real(engine, lanes)
    finally:
        await engine.close()
    header, *calls = read_call_log(path)
    assert isinstance(header, LogHeader)
    return header, [call for call in calls if isinstance(call, Call)], stats


def simulation(header: LogHeader, lanes: int, record: list[Recorder], calls: list[Call]) -> Simulation:
    def recorder(config, policy, connector) -> Recorder:
        record.append(Recorder(config, policy, connector, sink=calls.append))
        return record[-1]

    settings = SimSettings(
        steps=STEPS,
        engine=header.config,
        replay=rules(lanes),
        duration_s=1e6,
        policy=lambda config: policy_of(header),
        front_end=FrontEnd(1e-3, 1e-6, 1e-4),
        fast_forward=False,
    )
    return Simulation(settings, SCRIPTS, lambda share: None, recorder)


def plans_of(calls: list[Call]) -> list[tuple]:
    """What a plan says but for tokens, the names of requests, which are counted in order of their start, and whether a
    token was known yet: a real step of a tiny model may end before the next one is planned."""
    names: dict[int, int] = {}
    found = []
    for call in calls:
        plan = msgspec.msgpack.decode(call.answer, type=StepPlan | None) if isinstance(call.call, Plan) else None
        if plan is None:
            continue
        for start in plan.starts:
            names.setdefault(start.request_id, len(names))
        chunks = [
            (names[chunk.request_id], chunk.start, chunk.num_tokens, chunk.new_blocks, chunk.samples)
            for chunk in plan.chunks
        ]
        found.append((plan.step, chunks, [names[gone] for gone in plan.released]))
    return found


@pytest.mark.parametrize("depth", [1, 2])
async def test_one_session_at_once_is_planned_alike(tiny: Tiny, tmp_path: Path, depth: int) -> None:  # noqa: F811
    header, real, stats = await real_log(tiny, tmp_path / "real", 1, depth)
    record: list[Recorder] = []
    made: list[Call] = []
    run = simulation(header, 1, record, made).run()
    assert len(plans_of(real)) > 60 and plans_of(made) == plans_of(real)
    assert stats.evicted_blocks > 0 and stats.prefix_hits_tokens > 0
    assert run.stats[0].prefix_hits_tokens == stats.prefix_hits_tokens
    assert run.stats[0].evicted_blocks == stats.evicted_blocks


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_real_log_replays_in_the_simulators_core(tiny: Tiny, tmp_path: Path, depth: int) -> None:  # noqa: F811
    """Three sessions at once: what is planned with what depends on time, and the log has the times."""
    header, calls, stats = await real_log(tiny, tmp_path / "real", 3, depth)
    record: list[Recorder] = []
    simulation(header, 3, record, [])
    built = record[0]
    assert built.config == header.config
    assert replay(built.header, calls, policy_of(header)) >= stats.steps > 20
    other = msgspec.structs.replace(built.header, config=replace(built.config, max_num_batched_tokens=24))
    with pytest.raises(ReplayMismatch):
        replay(other, calls, policy_of(header))


def test_a_simulated_runs_log_is_one_for_check_log(tmp_path: Path) -> None:
    header = LogHeader(EngineConfig(40, BLOCK, max_num_batched_tokens=32, max_model_len=200), "agent")
    record: list[Recorder] = []
    made: list[Call] = []
    simulation(header, 3, record, made).run()
    log = CallLog(tmp_path / "simulated")
    for line in (record[0].header, *made):
        log.write(line)
    log.close()
    shown = CliRunner().invoke(app, ["check-log", str(tmp_path / "simulated")])
    assert shown.exit_code == 0 and f"{len(plans_of(made))} plans come out again" in " ".join(shown.output.split())
