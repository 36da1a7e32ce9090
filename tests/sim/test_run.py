"""Whole runs of recorded sessions: equal runs are equal, every log replays, nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import re

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError
from samovar.core.calls import Advance, Call, Submit, TellOutcome
from samovar.core.calls import Plan as PlanCall
from samovar.core.config import EngineConfig
from samovar.core.replay import Recorder, replay
from samovar.policy.agent import AgentPolicy
from samovar.policy.lru import LRU
from samovar.sim.outcome import SimRun
from samovar.sim.run import Simulation
from samovar.sim.settings import Acceptance, FrontEnd, SimSettings
from samovar.workload.metrics import summarise
from samovar.workload.replay import ReplayConfig
from samovar.workload.replay_script import Script, script_of
from samovar.workload.synth import synthesise
from samovar.workload.synth_config import SynthConfig
from tests.sim.runs import Steps, engine, lone_call, run, two_times
from tests.workload.replay_trees import recorded_trees

PARTS = ("front_end_s", "queue_s", "load_s", "prefill_s", "decode_s", "other_ranks_s")
LINEAR = Steps(
    lambda shape: 0.02 + 1e-3 * shape.decode_rows + 1e-6 * shape.kv_read_tokens + 1e-4 * shape.prefill_tokens
)


@pytest.fixture(scope="module")
def scripts() -> list[Script]:
    """Small sessions of the usual shape."""
    config = SynthConfig(
        sessions=6, seed=3, turns_median=8, turns_p90=20, input_median=6_000, input_p90=20_000, output_median=40,
        output_p90=200, tool_tokens=640, system_tokens=320,
    )  # fmt: skip
    return [script_of(tree) for tree in synthesise(config)]


def settings_of(config: EngineConfig, **fields) -> SimSettings:
    defaults = {
        "steps": LINEAR,
        "engine": config,
        "replay": ReplayConfig(concurrency=6, warmup_calls=2),
        "duration_s": 60.0,
        "policy": lambda config: LRU(),
        "ranks": 2,
        "front_end": FrontEnd(0.01, 1e-6, 1e-3),
    }
    return SimSettings(**defaults | fields)


def logged(settings: SimSettings, scripts: list[Script]) -> tuple[SimRun, list[tuple[Recorder, list[Call]]]]:
    """The run, and per rank its core with all calls into it."""
    logs: list[tuple[Recorder, list[Call]]] = []

    def record(config, policy, connector) -> Recorder:
        calls: list[Call] = []
        logs.append((Recorder(config, policy, connector, sink=calls.append), calls))
        return logs[-1][0]

    return Simulation(settings, scripts, lambda share: None, record).run(), logs


DEPTHS = [
    pytest.param(engine(num_blocks=520, max_model_len=33_000, depth=2, max_num_batched_tokens=1024), {}, id="depth 2"),
    pytest.param(
        engine(
            num_blocks=520,
            max_model_len=33_000,
            max_num_batched_tokens=512,
            num_speculative_tokens=3,
            prefill_schedule_interval=3,
        ),
        {"acceptance": Acceptance(3, 2.49)},
        id="drafts",
    ),
]


@pytest.mark.parametrize("config, fields", DEPTHS)
def test_equal_settings_give_equal_runs(config: EngineConfig, fields: dict, scripts: list[Script]) -> None:
    first, second = (run_of(settings_of(config, **fields), scripts) for _ in range(2))
    assert first == replace(second, took_s=first.took_s)
    other = run_of(settings_of(config, **fields, seed=1), scripts)
    assert (other.records == first.records) is (config.num_speculative_tokens == 0)


def run_of(settings: SimSettings, scripts: list[Script]) -> SimRun:
    return Simulation(settings, scripts, lambda share: None).run()


@pytest.mark.parametrize("config, fields", DEPTHS)
@pytest.mark.parametrize("fast_forward", [False, True])
def test_the_log_of_every_rank_replays(
    config: EngineConfig, fields: dict, fast_forward: bool, scripts: list[Script]
) -> None:
    """The cores that ran are the production ones: what was logged of them comes out of fresh ones again."""
    made, logs = logged(settings_of(config, fast_forward=fast_forward, **fields), scripts)
    assert made.steps.group and len(logs) == 2
    for (recorder, calls), stats in zip(logs, made.stats, strict=True):
        assert replay(recorder.header, calls, LRU()) == sum(
            1 for call in calls if isinstance(call.call, PlanCall) and call.answer != b"\xc0"
        )
        assert stats.evicted_blocks > 0, "the cache is too large to show anything"


def test_a_recorded_run_is_the_run_itself(scripts: list[Script]) -> None:
    settings = settings_of(
        engine(num_blocks=520, max_model_len=33_000, depth=2), policy=lambda config: AgentPolicy(config.num_blocks)
    )
    made, _ = logged(settings, scripts)
    plain = run_of(settings, scripts)
    assert plain == replace(made, took_s=plain.took_s)


def test_an_infinite_cache_reaches_the_ceiling(scripts: list[Script]) -> None:
    made = run_of(settings_of(engine(num_blocks=20_000, max_num_batched_tokens=1024), ranks=1), scripts)
    point = summarise(made.records, concurrency=6)
    assert point.ok > 20 and point.failed == 0
    assert point.hit_rate == pytest.approx(point.hit_ceiling, abs=1e-9)
    assert made.stats[0].evicted_blocks == 0 and made.stats[0].preemptions == 0


@pytest.mark.parametrize("block_tokens", [16, 64, 96, 100, 256, 512])
def test_any_block_size_will_do(block_tokens: int, scripts: list[Script]) -> None:
    config = engine(num_blocks=1_300_000 // block_tokens, block_tokens=block_tokens, max_num_batched_tokens=2048)
    made = run_of(settings_of(config, ranks=1), scripts)
    point = summarise(made.records, concurrency=6)
    assert point.hit_rate == pytest.approx(point.hit_ceiling, abs=1e-9) and point.hit_rate > 0.5


@pytest.mark.parametrize("balancer", ["sticky", "least-loaded", "round-robin"])
def test_sticky_sessions_find_their_prefixes(balancer: str, scripts: list[Script]) -> None:
    """What sessions of different ranks have in common, their tools, is computed once on each."""
    config = engine(num_blocks=20_000, max_num_batched_tokens=1024)
    made = run_of(settings_of(config, ranks=4, balancer=balancer), scripts)
    point = summarise(made.records, concurrency=6)
    if balancer == "sticky":
        assert point.hit_rate > point.hit_ceiling - 0.03
    else:
        assert point.hit_rate < point.hit_ceiling - 0.1


def test_what_is_cut_off_is_told_and_leaves_no_block() -> None:
    """One call ends after 1 + 9 x 0.25 s, the other would take 2501; 200.1 s and 5 of grace."""
    made = run(
        [lone_call("a", 640, 10), lone_call("b", 640, 10_000)], two_times(1.0, 0.25), duration_s=200.1, grace_s=5.0,
        concurrency=2, visits=3,
    )  # fmt: skip
    assert [record.status for record in made.records] == ["ok", "ok", "cut"] and made.simulated_s == pytest.approx(
        205.1
    )
    cut, timing = made.records[-1], made.timings[-1]
    assert (cut.last_s, cut.cached_tokens, cut.planned_output_tokens) == (205.0, None, 10_000)
    # Two steps had a prompt, its own and that of the other lane's next visit.
    assert cut.output_tokens == 2 + (205.0 - 2 * 1.0) / 0.25
    assert timing.total_s == cut.end_s == pytest.approx(205.1)
    assert made.stats[0].requests_finished == {"length": 2, "abort": 1}


def test_a_prompt_that_does_not_fit_fails_and_ends_its_tree(scripts: list[Script]) -> None:
    made = run_of(settings_of(engine(max_model_len=8192)), scripts)
    failed = [record for record in made.records if record.status == "failed"]
    assert failed and all("the context holds 8192" in record.error for record in failed)
    assert made.sessions_finished > 0


def test_memory_is_sampled_evenly_and_adds_up(scripts: list[Script]) -> None:
    made = run_of(settings_of(engine(num_blocks=1100, max_num_batched_tokens=1024)), scripts)
    assert {sample.rank for sample in made.memory} == {0, 1}
    assert all(sample.used_blocks + sample.cached_blocks + sample.free_blocks == 1100 for sample in made.memory)
    times = [sample.time_s for sample in made.memory if sample.rank == 0]
    assert len(times) > 200 and all(b > a for a, b in pairwise(times))


@pytest.mark.parametrize("config, fields", DEPTHS)
def test_fast_forward_changes_no_figure(config: EngineConfig, fields: dict, scripts: list[Script]) -> None:
    slow, fast = (settings_of(config, fast_forward=on, **fields) for on in (False, True))
    stepped, (leapt, logs) = run_of(slow, scripts), logged(fast, scripts)
    assert stepped == replace(leapt, took_s=stepped.took_s)
    rounds = sum(call.call.rounds for _, calls in logs for call in calls if isinstance(call.call, Advance))
    assert rounds > sum(stats.steps for stats in leapt.stats) / 3, "little was taken together"


@settings(max_examples=25, deadline=None)
@given(
    trees=st.lists(recorded_trees(), min_size=1, max_size=3),
    depth=st.integers(1, 2),
    ranks=st.integers(1, 3),
    blocks=st.integers(30, 60),
    interval=st.integers(1, 4),
    balancer=st.sampled_from(["sticky", "least-loaded", "round-robin"]),
    warmup=st.integers(0, 2),
)
def test_any_load_ends_and_every_check_holds(trees, depth, ranks, blocks, interval, balancer, warmup) -> None:
    config = engine(
        num_blocks=blocks, block_tokens=16, depth=depth, max_num_seqs=3, max_num_batched_tokens=48,
        max_model_len=blocks * 16, prefill_schedule_interval=interval,
    )  # fmt: skip
    fields = {
        "ranks": ranks, "balancer": balancer, "rules": {"start_from": 0.2, "start_to": 0.5, "warmup_calls": warmup},
    }  # fmt: skip
    scripts = [script_of(tree) for tree in trees]
    made = run(scripts, LINEAR, config, **fields)
    assert all(record.status == "ok" for record in made.records)
    assert made.sessions_finished == len(trees)
    stepped = run(scripts, LINEAR, config, fast_forward=False, **fields)
    assert stepped == replace(made, took_s=stepped.took_s)


def test_settings_that_cannot_work_are_named() -> None:
    for fields, named in (
        ({"ranks": 0}, "ranks is 0"),
        ({"duration_s": 0.0}, "duration_s is 0"),
        ({"stats_delay_s": -1.0}, "stats_delay_s is -1"),
        ({"acceptance": Acceptance(2, 1.5)}, "acceptance.drafts is 2"),
    ):
        with pytest.raises(ConfigError, match=named):
            settings_of(engine(), **fields)
    for make, named in (
        (lambda: Acceptance(2, 3.5), "mean_tokens is 3.5"),
        (lambda: Acceptance(-1, 1.0), "drafts is -1"),
        (lambda: FrontEnd(-1.0), "request_s is -1"),
    ):
        with pytest.raises(ConfigError, match=named):
            make()


def test_cores_hear_what_the_benchmarks_server_would(scripts: list[Script]) -> None:
    """Names of sessions and their parents, and how the recorded answers ended."""
    _, logs = logged(settings_of(engine(max_num_batched_tokens=1024), ranks=1), scripts)
    ((_, calls),) = logs
    submitted = [call.call.request for call in calls if isinstance(call.call, Submit)]
    mains = {request.session_id for request in submitted if not request.parent_session_id}
    agents = [request for request in submitted if request.parent_session_id]
    assert agents and all(re.fullmatch(r"simulated-c6-l\d-v\d-s0", name) for name in mains)
    assert {f"simulated-c6-l{lane}-v0-s0" for lane in range(6)} <= mains
    assert all(re.fullmatch(request.parent_session_id[:-1] + r"[1-9]\d*", request.session_id) for request in agents)
    told = [call.call for call in calls if isinstance(call.call, TellOutcome)]
    assert {call.reason for call in told} <= {"tool_calls", "stop"} and len(told) > 10


@pytest.mark.parametrize("depth", [1, 2])
def test_time_of_a_turn_is_told_apart(depth: int, scripts: list[Script]) -> None:
    """Every part of a turn's time is there, and nothing is counted twice (which `checks` sees to)."""
    made = run_of(settings_of(engine(max_num_batched_tokens=512, depth=depth, max_num_seqs=2)), scripts)
    sums = [sum(getattr(timing, name) for timing in made.timings) for name in PARTS]
    assert sums[2] == 0.0 and all(seconds > 0 for at, seconds in enumerate(sums) if at != 2)
    steps = sum(kind.seconds for kind in made.steps.group.values())
    assert sum(made.steps.limits.values()) == pytest.approx(steps)
    assert steps + made.steps.idle_s == pytest.approx(made.simulated_s, abs=0.5)
