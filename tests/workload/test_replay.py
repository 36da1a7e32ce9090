"""The replay machine against its rules, on made-up trees, drawn ones, and real traces."""

from __future__ import annotations

from itertools import pairwise
import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.base.errors import ConfigError
from samovar.workload.reading import read_session
from samovar.workload.replay import Launch, Replay, ReplayConfig
from samovar.workload.replay_script import Call, Script, script_of
from samovar.workload.session import SessionTree
from tests.workload.replay_trees import drive, main_stream, recorded_trees, subagent, tree, turn

NO_CAPS = {"tree_idle_cap_s": 1e9, "idle_cap_s": 1e9}
COLD = {"start_from": 0.0, "start_to": 0.0, **NO_CAPS}


def config(**changes: object) -> ReplayConfig:
    return ReplayConfig(**{"concurrency": 1, "max_visits": 1, **COLD, **changes})  # type: ignore[arg-type]


def as_recorded(launch: Launch) -> float:
    return launch.call.end_s - launch.call.start_s


def starts(made: list[tuple[float, float, Launch]]) -> dict[tuple[int, int], float]:
    return {(launch.call.stream, launch.call.turn): start for start, _, launch in made}


@given(recorded_trees())
def test_a_server_as_fast_as_the_recorded_one_reproduces_the_recording(session: SessionTree) -> None:
    made = drive(Replay([script_of(session)], config()), as_recorded)
    began = min(t.start_s for stream in session.streams for t in stream.turns)
    recorded = {
        (s, k): t.start_s - began for s, stream in enumerate(session.streams) for k, t in enumerate(stream.turns)
    }
    assert starts(made) == pytest.approx(recorded)


@given(recorded_trees(), st.floats(0, 3), st.integers(0, 2**32))
def test_with_any_server_a_call_fires_when_all_it_waits_for_is_over_and_its_gap_has_passed(
    session: SessionTree, scale: float, seed: int
) -> None:
    script = script_of(session)
    latencies = {call.index: ((seed >> call.index) % 7) / 2 for call in script.calls}
    made = drive(Replay([script], config(time_scale=scale)), lambda launch: latencies[launch.call.index])
    start = {launch.call.index: at for at, _, launch in made}
    end = {launch.call.index: at for _, at, launch in made}
    assert start.keys() == {call.index for call in script.calls}
    for call in script.calls:
        assert start[call.index] == pytest.approx(_by_the_rules(session, script, call, start, end, scale))


def _by_the_rules(
    session: SessionTree, script: Script, call: Call, start: dict[int, float], end: dict[int, float], scale: float
) -> float:
    """When a call is due, from the recorded times alone."""
    own = (call.start_s, call.stream, call.turn)
    others = [c for c in script.calls if c is not call]
    barriers = []
    for s in range(len(session.streams)):
        over = [c for c in others if c.stream == s != call.stream and c.end_s <= call.start_s]
        over = [c for c in over if (c.start_s, c.stream, c.turn) < own]
        barriers += [end[c.index] for c in over]
    for s, stream in enumerate(session.streams):
        if stream.join_turn == call.turn and stream.parent == session.streams[call.stream].id:
            barriers += [end[c.index] for c in others if c.stream == s]
    stream = session.streams[call.stream]
    if call.turn:
        before = next(c for c in others if (c.stream, c.turn) == (call.stream, call.turn - 1))
        due = end[before.index] + scale * max(0.0, call.start_s - before.end_s)
    elif stream.parent is not None and stream.spawn_turn is not None:
        parent = next(s for s, other in enumerate(session.streams) if other.id == stream.parent)
        before = next(c for c in others if (c.stream, c.turn) == (parent, stream.spawn_turn))
        if call.start_s >= before.end_s:
            due = end[before.index] + scale * (call.start_s - before.end_s)
        else:
            due = start[before.index] + scale * (call.start_s - before.start_s)
    else:
        due = scale * call.start_s
    return max([due, *barriers])


@given(st.data(), st.integers(1, 5), st.integers(0, 3))
@settings(max_examples=60)
def test_any_run_is_repeatable_never_stuck_and_lanes_hold_one_tree_each(
    data: st.DataObject, lanes: int, warmup: int
) -> None:
    sessions = [data.draw(recorded_trees(name=f"t{n}")) for n in range(data.draw(st.integers(1, 3)))]
    window = sorted((data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))))
    rules = ReplayConfig(
        concurrency=lanes,
        start_from=window[0],
        start_to=window[1],
        warmup_calls=warmup,
        tree_idle_cap_s=data.draw(st.sampled_from([0.0, 1.0, 300.0])),
        idle_cap_s=data.draw(st.sampled_from([0.0, 1.0, 10.0])),
        max_visits=data.draw(st.integers(1, 8)),
    )
    runs = []
    for _ in range(2):
        replay = Replay([script_of(session) for session in sessions], rules)
        made = drive(replay, lambda launch: 0.5 + launch.output_tokens / 10)
        runs.append([(at, end, x.lane, x.visit, x.call.index, x.phase, x.output_tokens) for at, end, x in made])
        assert replay.finished_visits == replay.begun_visits == rules.max_visits
        _check_lanes(made, lanes)
    assert runs[0] == runs[1]


def _check_lanes(made: list[tuple[float, float, Launch]], lanes: int) -> None:
    assert {x.lane for _, _, x in made} <= set(range(lanes))
    for lane in range(lanes):
        mine = [(at, end, x) for at, end, x in made if x.lane == lane and x.phase == "profile"]
        keys = [(x.visit, x.call.index) for _, _, x in mine]
        assert len(keys) == len(set(keys))
        for (_, _, a), (at, _, b) in pairwise(mine):
            assert a.visit <= b.visit
            if b.visit > a.visit:
                assert all(end <= at for _, end, x in mine if x.visit < b.visit)


def test_warm_start_makes_the_last_call_of_each_live_agent_first_with_one_token() -> None:
    session = tree(
        main_stream(turn(0, 1), turn(2, 3), turn(60, 61)),
        subagent("gone", 0, None, turn(1, 2)),
        subagent("live", 1, 2, turn(4, 5), turn(10, 11), turn(55, 56)),
    )
    rules = config(start_from=0.5, start_to=0.5)
    made = drive(Replay([script_of(session)], rules), lambda launch: 1.0)
    warm = [x for _, _, x in made if x.phase == "warmup"]
    assert [(x.call.stream, x.call.turn, x.output_tokens) for x in warm] == [(0, 1, 1), (2, 1, 1)]
    first, second = [(at, x) for at, _, x in made if x.phase == "profile"]
    assert (first[0], first[1].call.stream, first[1].output_tokens) == (1.0, 2, 5)  # at once, when warm-up is over
    assert (second[0] - first[0], second[1].call.stream) == (5.0, 0)  # the recorded spacing


def test_further_warm_up_calls_have_no_gaps_and_one_token() -> None:
    session = tree(main_stream(*(turn(100 * n, 100 * n + 1) for n in range(6))))
    rules = config(start_from=0.25, start_to=0.25, warmup_calls=2)
    made = drive(Replay([script_of(session)], rules), lambda launch: 1.0)
    assert [(at, x.call.turn, x.phase, x.output_tokens) for at, _, x in made[:4]] == [
        (0.0, 1, "warmup", 1),
        (1.0, 2, "warmup", 1),
        (2.0, 3, "warmup", 1),
        (3.0, 4, "profile", 5),
    ]


def test_pending_first_calls_of_lanes_keep_their_spacing() -> None:
    sessions = [
        tree(main_stream(turn(0, 1), turn(50, 51), turn(100, 100)), name="a"),
        tree(main_stream(turn(0, 1), turn(70, 71), turn(100, 100)), name="b"),
    ]
    rules = config(concurrency=2, max_visits=2, start_from=0.3, start_to=0.3)
    made = drive(Replay([script_of(session) for session in sessions], rules), lambda launch: 1.0)
    profile = [(at, x.script.tree.id) for at, _, x in made if x.phase == "profile"]
    assert profile[:2] == [(1.0, "a"), (21.0, "b")]


def test_idle_caps_cut_time_out_of_a_tree_and_out_of_everything() -> None:
    slow = tree(main_stream(turn(0, 1), turn(500, 501)), subagent("bg", 0, None, turn(600, 601)), name="slow")
    busy = tree(main_stream(turn(0, 1_000)), name="busy")
    replay = Replay([script_of(busy), script_of(slow)], config(concurrency=2, max_visits=2, tree_idle_cap_s=300))
    made = drive(replay, as_recorded)
    assert [at for at, _, x in made if x.script.tree.id == "slow"] == [0.0, 301.0, 401.0]
    assert replay.skipped_s == pytest.approx(199.0)
    replay = Replay([script_of(slow)], config(idle_cap_s=10))
    assert [at for at, _, _ in drive(replay, as_recorded)] == [0.0, 11.0, 22.0]
    assert replay.skipped_s == pytest.approx(489.0 + 89.0)


def test_a_cut_of_idle_time_holds_for_what_waits_at_a_barrier_too() -> None:
    session = tree(main_stream(turn(0, 1), turn(600, 601)), subagent("a", 0, 1, turn(400, 500)), name="join")
    made = drive(Replay([script_of(session)], config(tree_idle_cap_s=100)), as_recorded)
    assert starts(made) == {(0, 0): 0.0, (1, 0): 101.0, (0, 1): 301.0}


def test_the_loop_is_closed_and_trees_come_around() -> None:
    sessions = [tree(main_stream(turn(0, 1), turn(3, 4)), name=name) for name in "abc"]
    replay = Replay([script_of(session) for session in sessions], config(concurrency=2, max_visits=None))
    made = drive(replay, lambda launch: 1.0, until=40)
    assert [x.script.tree.id for _, _, x in made if x.call.turn == 0][:7] == ["a", "b", "c", "a", "b", "c", "a"]
    assert [x.repeat for _, _, x in made if x.call.turn == 0][:7] == [0, 0, 0, 1, 1, 1, 2]
    assert max(x.visit for _, _, x in made) >= 3


def test_a_context_overflow_ends_the_tree_and_its_lane_goes_on() -> None:
    long = tree(main_stream(turn(0, 1), turn(5, 6)), subagent("a", 0, None, turn(1, 9)), name="long")
    replay = Replay([script_of(long), script_of(tree(main_stream(turn(0, 1)), name="next"))], config(max_visits=2))
    first = replay.due(0.0)[0]
    replay.completed(first.id, 1.0)
    child = replay.due(1.0)[0]
    parent = replay.due(5.0)[0]
    replay.completed(parent.id, 6.0, end_tree=True)
    assert replay.due(6.0) == []  # the sub-agent still runs
    replay.completed(child.id, 9.0)
    replay.check()
    assert [x.script.tree.id for x in replay.due(9.0)] == ["next"]


def test_an_overflow_in_warm_up_ends_the_tree_too() -> None:
    scripts = [script_of(tree(main_stream(turn(0, 1), turn(5, 6)), name=name)) for name in "ab"]
    replay = Replay(scripts, config(max_visits=2, start_from=0.5, start_to=0.5, warmup_calls=1))
    first = replay.due(0.0)[0]
    replay.completed(first.id, 1.0, end_tree=True)
    following = replay.due(1.0)
    assert [(x.script.tree.id, x.call.turn) for x in following] == [("b", 0)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"concurrency": 0}, "--concurrency is 0"),
        ({"start_from": 0.8, "start_to": 0.2}, "--start 0.8:0.2"),
        ({"time_scale": -1}, "--time-scale is -1"),
        ({"idle_cap_s": float("nan")}, "--idle-cap is nan"),
        ({"max_visits": 0}, "--sessions is 0"),
    ],
)
def test_rules_that_cannot_work_name_their_flag(change: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        config(**change)


TRACES = Path(os.environ.get("SAMOVAR_TRACES") or Path(__file__).parents[3] / "shared" / "traces")


@pytest.mark.parametrize("name", ["trace_0277", "trace_0291", "trace_0274"])
def test_real_sub_agents_replay_in_recorded_order_and_time(name: str) -> None:
    path = TRACES / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    session = read_session(path)
    script = script_of(session)
    made = drive(Replay([script], config()), as_recorded)
    assert len(made) == session.num_turns
    for at, _, launch in made:
        # Whole recorded seconds let calls of one agent overlap by up to one, which a replay may not.
        assert 0 <= at - launch.call.start_s < 2.5 * len(script.calls) ** 0.5
    assert [x.call.index for _, _, x in made[:3]] == [0, 1, 2]
