"""Names of agents: another for every lane, visit and stream, and the parent's as the parent goes by it itself."""

from __future__ import annotations

from samovar.workload.agent_names import session_names
from samovar.workload.replay import Replay, ReplayConfig
from samovar.workload.replay_script import script_of
from tests.workload.replay_trees import drive, main_stream, subagent, tree, turn


def test_names_of_a_tree_and_of_its_next_visit() -> None:
    one = tree(
        main_stream(turn(0, 1), turn(8, 9)),
        subagent("a", 0, 1, turn(1, 2)),
        subagent("b", 0, None, turn(2, 3), parent="a"),
    )
    rules = ReplayConfig(1, start_from=0.0, start_to=0.0, max_visits=2)
    made = [session_names("run", launch) for _, _, launch in drive(Replay([script_of(one)], rules), lambda launch: 1.0)]
    main, first, second = "run-l0-v0-s0", "run-l0-v0-s1", "run-l0-v0-s2"
    assert set(made[:4]) == {(main, ""), (first, main), (second, first)}
    assert set(made[4:]) == {(own.replace("v0", "v1"), parent.replace("v0", "v1")) for own, parent in made[:4]}
