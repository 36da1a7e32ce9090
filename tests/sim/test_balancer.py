"""Where requests go, by hand."""

from __future__ import annotations

from samovar.sim.balancer import Balancer
from samovar.workload.prompts import seed_of
from samovar.workload.replay import Launch
from samovar.workload.replay_script import Script, script_of
from tests.workload.replay_trees import main_stream, subagent, tree, turn

SCRIPT = script_of(tree(main_stream(turn(0, 1), turn(2, 3)), subagent("s", 0, None, turn(1, 2))))


def call(lane: int, stream: int = 0, visit: int = 0, script: Script = SCRIPT) -> Launch:
    found = next(call for call in script.calls if call.stream == stream)
    return Launch(lane * 10 + stream, lane, visit, 0, script, found, "profile", 0.0, 1)


def test_round_robin() -> None:
    balancer = Balancer("round-robin", 3, 4, 0.1)
    assert [balancer.choose(call(0), 0.0) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_sticky_spreads_trees_and_keeps_their_turns() -> None:
    balancer = Balancer("sticky", 3, 4, 0.1)
    assert [balancer.choose(call(lane), 0.0) for lane in range(5)] == [0, 1, 2, 0, 1]
    for rank in range(3):
        balancer.changed(rank, 3, 9, 1.0)
    assert [balancer.choose(call(lane), 5.0) for lane in range(5)] == [0, 1, 2, 0, 1]
    # Rank 2 has one tree, the others two: a new tree goes there, and one that begins where one ended stays balanced.
    assert balancer.choose(call(7), 5.0) == 2
    assert balancer.choose(call(7, visit=1), 5.0) == 2


def test_a_sub_agent_goes_with_its_tree_unless_that_rank_is_full() -> None:
    balancer = Balancer("sticky", 2, 4, 0.1)
    assert balancer.choose(call(0), 0.0) == 0
    assert balancer.choose(call(0, stream=1), 0.0) == 0
    balancer = Balancer("sticky", 2, 4, 0.1)
    assert balancer.choose(call(0), 0.0) == 0
    balancer.changed(0, 4, 0, 1.0)
    assert balancer.choose(call(0, stream=1), 1.2) == 1
    balancer.changed(0, 0, 0, 2.0)
    assert balancer.choose(call(0, stream=1), 3.0) == 1, "it stays where it began"
    assert balancer.choose(call(0), 3.0) == 0


def test_loads_are_known_late_and_what_was_sent_at_once() -> None:
    balancer = Balancer("least-loaded", 2, 4, 0.5)
    assert [balancer.choose(call(0), 0.0) for _ in range(4)] == [0, 1, 0, 1]
    balancer.changed(0, 0, 0, 0.0)
    balancer.changed(1, 2, 0, 0.0)
    # At 0.4 s both are known as empty, with two requests sent to each; at 0.5 s what they had at 0 is known.
    assert balancer.choose(call(0), 0.4) == 0
    assert balancer.choose(call(0), 0.45) == 1
    assert balancer.choose(call(0), 0.5) == 0, "rank 0: one sent (4); rank 1: two running and one sent (6)"
    assert balancer.choose(call(0), 0.5) == 1
    balancer.changed(1, 0, 3, 0.6)
    assert balancer.choose(call(0), 2.0) == 0, "three waiting count as twelve running"


def test_by_hash_an_agent_stays_where_it_is_whatever_the_loads() -> None:
    balancer = Balancer("hash", 8, 4, 0.1)
    ranks = [balancer.choose(call(lane), 0.0) for lane in range(800)]
    for rank in range(8):
        balancer.changed(rank, rank, 9 * rank, 1.0)
        assert 60 <= ranks.count(rank) <= 140
    assert [balancer.choose(call(lane), 5.0) for lane in range(800)] == ranks
    assert any(balancer.choose(call(lane, stream=1), 5.0) != ranks[lane] for lane in range(8)), "agents, not trees"


def test_a_server_does_not_know_what_another_one_sent() -> None:
    """Two servers, two ranks: each begins with a rank of its own and takes its turns from there, whatever the other
    does, until the ranks tell."""
    balancer = Balancer("least-loaded", 2, 4, 0.5, servers=2)
    of: dict[int, list[int]] = {0: [], 1: []}
    for lane in range(12):
        launch = call(lane)
        of[seed_of("server", launch.id) % 2].append(balancer.choose(launch, 0.0))
    assert len(of[0]) > 2 and len(of[1]) > 2
    assert of[0] == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1][: len(of[0])]
    assert of[1] == [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0][: len(of[1])]
    balancer.changed(0, 0, 9, 0.1)
    balancer.changed(1, 0, 0, 0.1)
    assert {balancer.choose(call(lane), 0.7) for lane in range(2)} == {1}, "all were told by now"
