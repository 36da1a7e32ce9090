"""Evidence from made runs, where every figure can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samovar.sim.explain import busiest_link, evidence, slow_turns, tier_use, verdict
from samovar.sim.outcome import LinkTotals, MemorySample, SimRun, StepKind, StepTotals, TurnTiming
from samovar.sim.report_limits import explain
from samovar.sim.report_tables import Simulated, evidence_table, links_table, points_table, turn_table
from samovar.workload.metrics import summarise
from samovar.workload.metrics_record import RequestRecord

POINT = summarise([], concurrency=1)


def record(number: int, prompt: int, ceiling: int, cached: int, **changes: object) -> RequestRecord:
    fields = {
        "concurrency": 1, "lane": 0, "tree": "t", "visit": 0, "stream": 0, "turn": number, "role": "main",
        "phase": "profile", "status": "ok", "due_s": 0.0, "start_s": 0.0, "end_s": 1.0, "first_s": 0.5, "last_s": 1.0,
        "planned_prompt_tokens": prompt, "prompt_tokens": prompt, "cached_tokens": cached, "ceiling_tokens": ceiling,
        "planned_output_tokens": 1, "output_tokens": 1, **changes,
    }  # fmt: skip
    return RequestRecord(**fields)  # type: ignore[arg-type]


def sample(time_s: float, rank: int, used: int, free: int, tiers: dict[str, int], waiting: int = 1) -> MemorySample:
    return MemorySample(time_s, rank, used, 100 - used - free, free, tiers, running=2, waiting=waiting)


def made(
    timings: tuple[TurnTiming, ...],
    records: tuple[RequestRecord, ...] | None = None,
    steps: StepTotals | None = None,
    memory: tuple[MemorySample, ...] = (),
    links: tuple[LinkTotals, ...] = (),
) -> SimRun:
    found = records or tuple(record(n, 100, 0, 0) for n in range(len(timings)))
    return SimRun(found, timings, steps or StepTotals(), memory, links, (), 100.0, 1.0, 10, 0.0, 1, 1)


def told(run: SimRun) -> dict[str, str]:
    return {found.cause: found.told for found in evidence(run, explain(run))}


def test_the_queue_by_who_waits_and_who_runs() -> None:
    run = made(
        (TurnTiming(queue_s=9.0),) * 2, memory=(sample(0.0, 0, 40, 60, {}, waiting=3), sample(1.0, 0, 20, 80, {}))
    )
    assert told(run) == {
        "scheduling": "a rank has 2.0 requests waiting and 2.0 running, while requests hold 30% of its KV"
    }
    assert verdict(run, explain(run)).startswith("scheduling, 100% of a turn: a rank has 2.0 requests waiting")


def test_kv_capacity_by_what_is_computed_again() -> None:
    records = (record(0, 100, 80, 80), record(1, 100, 80, 20))
    run = made(
        (TurnTiming(queue_s=5.0, prefill_s=5.0),) * 2,
        records,
        memory=(
            sample(0.0, 0, 98, 1, {"host": 4096}),
            sample(0.0, 1, 99, 0, {"host": 1024}),
            sample(2.0, 0, 99, 1, {}),
        ),
    )
    words = told(run)["KV capacity"]
    assert words == (
        "60% of the prompt tokens that were computed had been computed before, in 1 of 2 turns; while requests wait, "
        "1% of a rank's KV is not in use; tiers hold host up to 5 KiB"
    )
    assert told(replace(run, memory=(sample(0.0, 0, 99, 1, {}),)))["KV capacity"].endswith(
        "no tier is there to keep them"
    )


def test_a_link_by_the_turns_that_wait_for_it() -> None:
    links = (
        LinkTotals("host link of rank 0 in", 1e9, 40.0, 1e9, 200.0),
        LinkTotals("ssd of machine 0 read", 1e9, 150.0, 1e9, 200.0),
    )
    run = made((TurnTiming(load_s=2.0), TurnTiming(load_s=4.0), TurnTiming(prefill_s=1.0)), links=links)
    assert told(run)["link"] == (
        "2 of 3 turns wait 3 s on average for KV from a slower tier; ssd of machine 0 read is at work 75% of the time, "
        "the most of all links"
    )
    assert busiest_link(run) == links[1] and busiest_link(replace(run, links=())) is None


def test_steps_by_kind() -> None:
    steps = StepTotals(
        group={"decode": StepKind(10, 0.4, 0.04, 0.05), "mixed": StepKind(2, 0.6, 0.3, 0.3)},
        limits={"bandwidth": 0.3, "compute": 0.7},
        kind_limits={"decode": {"bandwidth": 0.3, "compute": 0.1}, "mixed": {"bandwidth": 0.0, "compute": 0.6}},
    )
    run = made((TurnTiming(prefill_s=1.0, decode_s=1.0),), steps=steps)
    found = told(run)
    assert found["bandwidth"] == "75% of steps that only decode, which take 40 ms each"
    assert found["compute"] == (
        "100% of steps that also prefill, which take 300 ms each, 25% of steps that only decode, which take 40 ms each"
    )
    assert [e.cause for e in evidence(run, explain(run))] == ["compute", "bandwidth"]
    little = {"decode": {"compute": 0.05}, "mixed": {"compute": 0.6}}
    assert told(replace(run, steps=replace(steps, kind_limits=little)))["compute"] == (
        "100% of steps that also prefill, which take 300 ms each"
    )


def test_other_ranks_and_the_front_end() -> None:
    run = made((TurnTiming(front_end_s=0.5, prefill_s=1.0, decode_s=3.0, other_ranks_s=2.0),))
    assert told(run)["other ranks"] == "steps take 50% longer than a rank's own part of them needs"
    assert told(run)["front end"] == "500 ms of each turn, whatever the engine does"


def test_what_is_little_needs_no_evidence() -> None:
    run = made((TurnTiming(load_s=99.0, front_end_s=1.0),))
    assert set(told(run)) == {"link"}


def test_slow_turns_are_the_slowest_tenth_that_ended_well() -> None:
    timings = tuple(TurnTiming(queue_s=float(n), decode_s=1.0) for n in range(20))
    records = (*(record(n, 10, 0, 0) for n in range(19)), record(19, 10, 0, 0, status="cut"))
    slow = slow_turns(made(timings, records))
    assert (slow.count, slow.least_s) == (2, 18.0)
    assert slow.turn.queue_s == pytest.approx(17.5)
    assert slow.told == "the slowest 2 turns take 18 s and more: the queue 95%, decoding 5%"
    ten = slow_turns(made(timings[:10]))
    assert ten.told == "the slowest turn takes 10 s: the queue 90%, decoding 10%"
    assert slow_turns(made(timings[:9])).told == "fewer than 10 turns ended well, which have no slowest tenth"


def test_a_tier_is_summed_over_ranks_and_averaged_over_time() -> None:
    memory = (
        sample(0.0, 0, 1, 1, {"host": 10, "disk": 0}), sample(0.0, 1, 1, 1, {"host": 20, "disk": 2}),
        sample(1.0, 0, 1, 1, {"host": 40, "disk": 4}), sample(1.0, 1, 1, 1, {"host": 50, "disk": 6}),
    )  # fmt: skip
    assert [(use.tier, use.most_bytes, use.mean_bytes) for use in tier_use(made((), memory=memory))] == [
        ("host", 90, 60.0),
        ("disk", 10, 6.0),
    ]


def test_a_run_without_turns_has_no_evidence() -> None:
    run = made(())
    assert evidence(run, explain(run)) == ()
    assert verdict(run, explain(run)) == "no request ended well in time"
    steps = StepTotals(group={"decode": StepKind(2, 60.0, 30.0, 30.0), "mixed": StepKind()})
    slow = replace(run, steps=steps)
    assert verdict(slow, explain(slow)) == ("no request ended well in time: steps that only decode take 30 s each")
    (row,) = points_table([Simulated(POINT, slow, explain(slow))]).rows
    assert row[3:8] == ("–",) * 5 and row[-1] == verdict(slow, explain(slow))
    assert set(turn_table([Simulated(POINT, slow, explain(slow))]).rows[0][2:]) == {"–"}


def test_tables_leave_out_what_few_turns_cannot_tell() -> None:
    for count, shown in ((9, False), (10, True)):
        run = made(tuple(TurnTiming(decode_s=1.0) for _ in range(count)))
        rows = evidence_table([Simulated(POINT, run, explain(run))]).rows
        assert any("slowest" in row[1] for row in rows) is shown


def test_little_that_is_moved_is_not_nothing() -> None:
    run = made((TurnTiming(load_s=1.0),), links=(LinkTotals("host", 5e6, 1.0, 1e9, 10.0),))
    assert links_table([Simulated(POINT, run, explain(run))]).rows[0][2] == "4.77 MiB"
