"""What is said of step times: where they were measured, and where they were not."""

from __future__ import annotations

from dataclasses import replace

from samovar.sim.cost.layout import Layout
from samovar.sim.cost.step_table import StepTable
from samovar.sim.outcome import MemorySample, SimRun, StepTotals
from samovar.sim.plan_setup import Hardware, Setup
from samovar.sim.report_notes import left_notes, step_notes
from samovar.spec.catalog import load_device, load_model
from tests.sim.test_explain import record

PRO = Hardware(load_model("deepseek-v4-pro"), load_device("B200"), 8)
TABLE = StepTable(((1.0, 8.0), (0.0, 512.0), (0.0, 10_000.0)), tuple(map(float, range(1, 9))))


def run(running: int, used: int, prompt: int, cached: int) -> SimRun:
    sample = MemorySample(0.0, 0, used, 0, 0, {}, running, 0)
    return SimRun((record(0, prompt, 0, cached),), (), StepTotals(), (sample,), (), (), 1.0, 1.0, 1, 0.0, 1, 1)


def test_the_prefill_floor_is_named_wherever_it_was_not_fitted() -> None:
    group = Layout(dp=8, ep=True)
    assert step_notes(PRO, group) == []
    (other,) = step_notes(PRO, Layout(tp=8))
    assert other == (
        "Any step with a prompt costs 64 ms beyond its work: fitted on DeepSeek-V4-Pro with DP8 on B200 alone, and not "
        "known for other layouts"
    )
    small = Hardware(load_model("smollm2-135m"), load_device("h200"), 1)
    assert step_notes(small, Layout())[0].endswith("not known for SmolLM2-135M on H200")
    assert step_notes(replace(small, device=replace(small.device, kernels="cpu")), Layout()) == []


def test_measured_steps_say_how_far_they_reach() -> None:
    hardware = replace(PRO, measured=TABLE)
    assert step_notes(hardware, Layout()) == [
        "Steps measured up to 8 sequences, 512 prompt tokens and 10,000 tokens of context; beyond that the last slope "
        "goes on"
    ]
    flat = StepTable(((4.0,), (0.0, 512.0), (0.0,)), (1.0, 2.0))
    assert step_notes(replace(PRO, measured=flat), Layout())[1] == (
        "These steps take equally long whatever the sequences and the context: they were measured at one value only"
    )


def test_a_run_that_leaves_them_is_told() -> None:
    hardware, setup = replace(PRO, measured=TABLE), Setup(layout=Layout(tp=8), max_model_len=1000)
    tokens = PRO.model.block_tokens
    assert left_notes(hardware, setup, run(8, 10_000 // tokens, 600, 100)) == []
    assert left_notes(hardware, setup, run(9, 10_000 // tokens + 1, 20_000, 1000)) == [
        "Steps went beyond those measured: 9 sequences (measured: up to 8), 8,192 prompt tokens (measured: up to 512), "
        f"{(10_000 // tokens + 1) * tokens:,} tokens of context (measured: up to 10,000)"
    ]
    assert left_notes(PRO, setup, run(900, 10**6, 10**6, 0)) == []
