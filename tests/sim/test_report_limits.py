"""What a turn's time is bound by: shares by hand, and that they always add up."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
import pytest

from samovar.sim.outcome import MemorySample, SimRun, StepKind, StepTotals, TurnTiming
from samovar.sim.report_limits import CAUSES, explain, prompt_share
from samovar.workload.metrics_record import RequestRecord

RECORD = RequestRecord(
    concurrency=1, lane=0, tree="t", visit=0, stream=0, turn=0, role="main", phase="profile", status="ok",
    due_s=0.0, start_s=0.0, first_s=1.0, last_s=2.0, end_s=2.0, planned_prompt_tokens=1000, prompt_tokens=1000,
    cached_tokens=900, ceiling_tokens=900, planned_output_tokens=10, output_tokens=10,
)  # fmt: skip
STEPS = StepTotals(
    group={
        "decode": StepKind(80, 8.0, 0.1, 0.1),
        "mixed": StepKind(5, 1.5, 0.3, 0.3),
        "prefill": StepKind(1, 0.5, 0.5, 0.5),
    },
    limits={"bandwidth": 6.0, "compute": 2.0, "launch": 1.0, "prefill floor": 1.0},
    kind_limits={
        "decode": {"bandwidth": 6.0, "compute": 1.0, "launch": 1.0},
        "mixed": {"compute": 0.75, "prefill floor": 0.75},
        "prefill": {"compute": 0.25, "prefill floor": 0.25},
    },
)  # fmt: skip
FREE = MemorySample(0.0, 0, 10, 20, 70, {}, 2, 0)


def made(*timings: TurnTiming, **fields: object) -> SimRun:
    values: dict[str, object] = {
        "records": (RECORD,) * len(timings), "timings": timings, "steps": STEPS, "memory": (FREE,), "links": (),
        "stats": (), "simulated_s": 20.0, "took_s": 1.0, "num_steps": 86, "skipped_s": 0.0, "sessions_begun": 1,
        "sessions_finished": 0,
    }  # fmt: skip
    return SimRun(**{**values, **fields})  # type: ignore[arg-type]


def test_step_time_is_divided_as_the_steps_were() -> None:
    found = explain(made(TurnTiming(front_end_s=1, queue_s=1, prefill_s=2, decode_s=6)))
    assert found.causes == pytest.approx(
        {"bandwidth": 0.48, "compute": 0.16, "front end": 0.1, "scheduling": 0.1, "launch": 0.08, "prefill floor": 0.08}
    )
    assert found.limit == "bandwidth" and next(iter(found.causes)) == "bandwidth"
    assert found.verdict == "bandwidth (48% of a turn): bytes per second of the device's memory; then compute (16%)"
    assert (found.kv_used_share, found.kv_kept_share) == (0.1, 0.2)


def test_lost_tokens_take_the_steps_of_prompts_along() -> None:
    """Half of what is computed had been there: half of the 1.5 s that prompts took, of 10 s in all."""
    lost = replace_record(cached_tokens=800)
    assert [prompt_share(STEPS, kind) for kind in ("decode", "mixed", "prefill")] == pytest.approx([0, 2 / 3, 1])
    found = explain(made(TurnTiming(decode_s=10), records=(lost,)))
    assert found.lost_share == pytest.approx(0.1)
    assert found.causes["KV capacity"] == pytest.approx(0.075)
    assert found.causes["prefill floor"] == pytest.approx(0.1 - 0.0375)
    assert found.causes["bandwidth"] == pytest.approx(0.6)


def test_a_queue_is_the_memorys_fault_when_nothing_more_fits() -> None:
    full = MemorySample(0.0, 0, 90, 5, 5, {}, 3, 4)
    room = MemorySample(1.0, 0, 60, 35, 5, {}, 3, 4)
    found = explain(made(TurnTiming(queue_s=10), memory=(full, room, FREE)))
    assert found.causes == pytest.approx({"KV capacity": 0.5, "scheduling": 0.5})


def test_only_measured_requests_that_ended_well_count() -> None:
    warm, cut = replace_record(phase="warmup"), replace_record(status="cut")
    run = made(TurnTiming(decode_s=1), TurnTiming(queue_s=9), TurnTiming(load_s=9), records=(RECORD, warm, cut))
    found = explain(run)
    assert (found.turns, found.turn) == (1, TurnTiming(decode_s=1))
    nothing = explain(made())
    assert nothing.causes == {} and nothing.verdict == "no request ended well" and nothing.limit == "nothing"


def test_idle() -> None:
    assert explain(made(steps=replace(STEPS, idle_s=5.0))).idle_share == 0.25


SECONDS = st.floats(0, 100, allow_subnormal=False)


@given(
    st.builds(TurnTiming, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS),
    st.integers(0, 1000),
    st.dictionaries(st.sampled_from(["bandwidth", "compute", "collectives", "prefill floor"]), SECONDS, min_size=1),
)  # fmt: skip
def test_shares_add_up(timing: TurnTiming, cached: int, limits: dict[str, float]) -> None:
    total = sum(limits.values())
    steps = StepTotals(
        group={"decode": StepKind(1, total / 2, total / 2, total / 2), "prefill": StepKind(1, total / 2, 0, 0)},
        limits=limits,
        kind_limits={
            "decode": {cause: part / 2 for cause, part in limits.items()},
            "prefill": {cause: part / 2 for cause, part in limits.items()},
        },
    )
    run = made(timing, records=(replace_record(cached_tokens=cached, ceiling_tokens=950),), steps=steps)
    found = explain(run)
    assert set(found.causes) <= set(CAUSES)
    assert all(share >= 0 for share in found.causes.values())
    if total > 0 and timing.total_s > 1e-6:
        assert sum(found.causes.values()) == pytest.approx(1.0)


def replace_record(**fields: object) -> RequestRecord:
    values = {name: getattr(RECORD, name) for name in RECORD.__struct_fields__}
    return RequestRecord(**{**values, **fields})
