"""Whole runs whose every time follows from a few multiplications."""

from __future__ import annotations

import pytest

from samovar.sim.settings import Acceptance, FrontEnd
from samovar.workload.replay_script import Script, script_of
from tests.sim.runs import Steps, engine, lone_call, run, two_times
from tests.workload.replay_trees import main_stream, subagent, tree, turn


@pytest.mark.parametrize("depth", [1, 2])
def test_one_request(depth: int) -> None:
    """1000 prompt tokens in steps of 512, then 9 more tokens."""
    front_end = FrontEnd(request_s=0.5, prompt_token_s=0.001, output_token_s=0.25)
    made = run(
        [lone_call("a", 1000, 10)], two_times(2.0, 0.125), engine(max_num_batched_tokens=512, depth=depth),
        front_end=front_end,
    )  # fmt: skip
    (record,), (timing,) = made.records, made.timings
    assert record.status == "ok" and record.output_tokens == 10 and record.cached_tokens == 0
    assert record.first_s == pytest.approx(0.5 + 1.0 + 2 * 2.0 + 0.25)
    assert record.end_s == pytest.approx(0.5 + 1.0 + 2 * 2.0 + 9 * 0.125 + 0.25)
    assert timing.front_end_s == pytest.approx(1.75) and timing.queue_s == 0.0
    assert timing.prefill_s == pytest.approx(4.0) and timing.decode_s == pytest.approx(1.125)
    assert made.num_steps == 11 and made.stats[0].steps == 11
    assert {name: kind.count for name, kind in made.steps.group.items()} == {"prefill": 2, "decode": 9}
    assert made.steps.group["decode"].seconds == pytest.approx(1.125)
    assert made.steps.limits["measured"] == pytest.approx(5.125)


def test_a_step_lasts_as_long_as_its_slowest_rank() -> None:
    """Rank 0 decodes over a context of 6400, rank 1 over 640: 1 and 0.1 s a step alone."""
    steps = Steps(lambda shape: 0.5 if shape.chunks else max(0.01, round(shape.context_tokens / 6400, 1)))
    made = run([lone_call("a", 6400, 5), lone_call("b", 640, 9)], steps, engine(max_num_batched_tokens=8192), ranks=2)
    slow, fast = sorted(made.records, key=lambda record: record.planned_output_tokens)
    assert slow.end_s == pytest.approx(0.5 + 4 * 1.0)
    assert fast.end_s == pytest.approx(0.5 + 4 * 1.0 + 4 * 0.1)
    timing = made.timings[made.records.index(fast)]
    assert timing.prefill_s == pytest.approx(0.5) and timing.decode_s == pytest.approx(8 * 0.1)
    assert timing.other_ranks_s == pytest.approx(4 * 0.9)
    assert made.timings[made.records.index(slow)].other_ranks_s == 0.0
    assert made.num_steps == 9 and [stats.steps for stats in made.stats] == [5, 9]
    decodes = made.steps.group["decode"]
    assert (decodes.count, decodes.p50_s, decodes.p90_s) == (8, 0.1, 1.0)
    assert {kind: found.count for kind, found in made.steps.ranks.items()} == {"prefill": 2, "decode": 12}


@pytest.mark.parametrize("interval", [1, 2, 8])
@pytest.mark.parametrize("guard", [True, False])
def test_prompts_that_come_at_once_and_the_interval_between_prefills(interval: int, guard: bool) -> None:
    """Eight prompts of 6k tokens, 2.6 s each, over decode steps of 0.25 s: what was published for four GB10s under
    DCP4 (34.0, 24.2 and 24.1 s). Between two prefills come interval - 1 steps without."""
    made = run(
        [lone_call(f"p{n}", 6000, 200) for n in range(8)],
        two_times(2.6, 0.25),
        engine(max_num_batched_tokens=6007, block_tokens=256, prefill_schedule_interval=interval),
        capacity_guard=guard,
    )
    slowest = max(record.first_s for record in made.records)
    assert slowest == pytest.approx(20.8 if guard else 8 * 2.6 + 7 * (interval - 1) * 0.25)
    assert guard or slowest == pytest.approx({1: 20.8, 2: 22.55, 8: 33.05}[interval])


def beside(at_s: float, *, output: int = 1) -> Script:
    """A main agent's call at 0 s, 640 tokens and 40 more, and a sub-agent's at `at_s`, while it runs."""
    main = turn(0.0, 100.0, list(range(1, 11)), out=40)
    return script_of(tree(main_stream(main), subagent("s", 0, None, turn(at_s, 90.0, list(range(21, 31)), out=output))))


@pytest.mark.parametrize("balancer, first_s", [("sticky", 2.75), ("round-robin", 2.25)])
def test_a_group_shares_one_step_counter(balancer: str, first_s: float) -> None:
    """Prefill in every 4th step of the wave: step 0 takes 1 s, the others 0.25. A call at 1.1 s waits for step 4, which
    begins at 1.75 s, where something decodes; on the idle rank it goes with the next step."""
    made = run(
        [beside(1.1)], two_times(1.0, 0.25), engine(prefill_schedule_interval=4, max_num_seqs=4), ranks=2,
        balancer=balancer,
    )  # fmt: skip
    assert {record.stream: record.first_s for record in made.records} == {0: 1.0, 1: first_s}


def test_steps_are_counted_from_the_beginning_of_a_wave() -> None:
    """The first wave has three steps. In the second one a sub-agent's call, 1.1 s after its start, waits for its step
    4."""
    turns = turn(0.0, 10.0, list(range(1, 11)), out=3), turn(15.0, 90.0, list(range(1, 12)), out=40)
    agent = subagent("s", 1, None, turn(16.1, 80.0, list(range(21, 31)), out=1))
    made = run(
        [script_of(tree(main_stream(*turns), agent))], two_times(1.0, 0.25),
        engine(prefill_schedule_interval=4, max_num_seqs=4), ranks=2,
    )  # fmt: skip
    main, beside_it = made.records[2], made.records[1]
    assert (main.turn, beside_it.stream) == (1, 1)
    assert (main.cached_tokens, main.ttft_s) == (640, 1.0)
    assert beside_it.first_s - main.start_s == pytest.approx(2.75)


@pytest.mark.parametrize("depth, begins_s", [(1, 1.5), (2, 1.75)])
def test_a_call_during_a_step(depth: int, begins_s: float) -> None:
    """At 1.3 s the step from 1.25 to 1.5 s runs. Two deep, the one behind it was planned when it began."""
    made = run([beside(1.3)], two_times(1.0, 0.25), engine(depth=depth))
    first = {record.stream: record.first_s for record in made.records}
    assert first[1] == pytest.approx(begins_s + 1.0)
    timing = next(t for t, record in zip(made.timings, made.records, strict=True) if record.stream == 1)
    assert timing.queue_s == pytest.approx(begins_s - 1.3)


@pytest.mark.parametrize("drafts, mean", [(3, 2.49), (5, 3.51), (2, 1.0), (1, 2.0)])
def test_acceptance_is_exact_over_a_request(drafts: int, mean: float) -> None:
    made = run(
        [lone_call("a", 640, 1001)], two_times(1.0, 0.5), engine(num_speculative_tokens=drafts),
        acceptance=Acceptance(drafts, mean),
    )  # fmt: skip
    (record,) = made.records
    assert record.output_tokens == 1001
    decode_steps = made.steps.group["decode"].count
    assert abs(1000 / mean - decode_steps) <= 1
    assert record.end_s == pytest.approx(1.0 + decode_steps * 0.5)


def test_idle_time_is_told() -> None:
    made = run([lone_call("a", 640, 3)], two_times(1.0, 0.25), front_end=FrontEnd(request_s=2.0))
    assert made.steps.idle_s == pytest.approx(2.0)
    assert made.simulated_s == pytest.approx(3.5)
