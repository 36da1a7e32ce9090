"""The log of steps: what a line says, what breaks it, and that a runner tells each step when it ran."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")
from tests.runner.conftest import Tiny
from tests.runner.test_local import chunk, start

from samovar.base.errors import ConfigError
from samovar.base.ids import RequestId
from samovar.core.plan import Chunk, StepPlan
from samovar.models.checkpoint import open_folder
from samovar.models.load import load_model, new_cache
from samovar.runner.local import LocalRunner
from samovar.runner.step_log import StepLine, StepLog, line_of, read_step_log
from samovar.sim.cost.step_log import read_log

pytestmark = pytest.mark.torch

PLAN = StepPlan(
    7,
    (
        Chunk(RequestId(1), 99, 1),
        Chunk(RequestId(2), 0, 1),
        Chunk(RequestId(3), 40, 20, samples=False),
        Chunk(RequestId(4), 0, 16),
    ),
)


def test_what_a_line_says() -> None:
    """A prompt of one token is a row as any other."""
    line = line_of(PLAN, 10.0, 10.25)
    assert line == StepLine(7, 10.25, 0.25, 4, 36, 101 + 40, 101, ((20, 40), (16, 0)))
    assert line.decodes == 2


def test_the_simulator_reads_it_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    log = StepLog(path)
    log.write(PLAN, 10.0, 10.25)
    log.write(StepPlan(8), 10.25, 10.3)  # transfers alone are no step
    log.close()
    log.close()
    log.write(PLAN, 11.0, 12.0)
    (row,) = read_log(path)
    assert (row.batch, row.prefill_tokens, row.kv_read_tokens, row.seconds) == (4, 36, 141, 0.25)
    assert list(read_step_log(path)) == [line_of(PLAN, 10.0, 10.25)]


def test_a_torn_line_is_the_end_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    line = msgspec.json.encode(line_of(PLAN, 0.0, 1.0)) + b"\n"
    path.write_bytes(line + line[:-5])
    assert len(list(read_step_log(path))) == 1
    path.write_bytes(line + b'{"step": 1}\n')
    with pytest.raises(ConfigError, match=r"line 2.*end_s"):
        list(read_step_log(path))
    with pytest.raises(ConfigError, match="missing/steps"):
        StepLog(tmp_path / "missing" / "steps")


def test_a_runner_tells_of_every_step(tiny: Tiny, tmp_path: Path) -> None:
    """By a clock that ticks at each look: a step begins when its plan came or when the one before it ended."""
    model = load_model(open_folder(tiny.folder), "float32")
    seen: list[tuple[int, float, float]] = []
    ticks = count(1)
    runner = LocalRunner(
        model,
        new_cache(model.spec, 8, 4, "float32"),
        on_step=lambda plan, began_s, ended_s: seen.append((plan.step, began_s, ended_s)),
        clock=lambda: float(next(ticks)),
    )
    prompt = [3, 14, 15, 92]
    first = runner.submit(StepPlan(0, (chunk(1, 0, 4, (0,)),), starts=(start(1, prompt),)))
    second = runner.submit(StepPlan(1, (chunk(1, 4, 5, (1,), sampled_in=0),)))
    broken = runner.submit(StepPlan(2, (chunk(9, 0, 1),)))
    assert first.result().error is None and second.result().error is None and broken.result().error
    runner.close()
    assert [step for step, _, _ in seen] == [0, 1, 2]
    assert all(began_s < ended_s for _, began_s, ended_s in seen)
    assert all(began_s >= ended_before_s for (_, _, ended_before_s), (_, began_s, _) in pairwise(seen))
