"""What the end of a turn leaves behind: of its conversation, and for the next one."""

from __future__ import annotations

import pytest

from samovar.core.stream import Stream
from tests.core.helpers import Bench, make_request
from tests.core.oracle_runner import expected_output
from tests.core.test_tiers import Favourites, prompt, run


def stream(bench: Bench, session: str = "s") -> Stream:
    found = bench.engine._board.streams.get(f"\0{session}")
    assert found is not None
    return found


@pytest.mark.parametrize("early", [False, True], ids=["after", "before"])
def test_what_a_turn_waits_for_is_what_it_called(early: bool) -> None:
    """Told before the end of its request or after it."""
    bench = Bench()
    tokens = prompt(1, 40)
    bench.submit(make_request(1, tokens, 4, session_id="s"))
    if early:
        bench.step()
        bench.engine.outcome(1, "tool_calls", ("task",), bench.now)
    bench.drain()
    if not early:
        bench.engine.outcome(1, "tool_calls", ("task",), bench.now)
    assert stream(bench).awaits == ("task",)
    run(bench, 2, tokens + expected_output(tokens, 4) + [1] * 20, 1, session_id="s")
    assert stream(bench).awaits == () and not bench.engine._board.streams.spawners.of("").among(("task",))
    bench.engine.outcome(2, "tool_calls", (), bench.now)
    assert stream(bench).awaits == ("",), "a tool without a name"
    bench.submit(make_request(3, tokens + expected_output(tokens, 4) + [1] * 40, 9, session_id="s"))
    bench.step()
    bench.engine.outcome(2, "tool_calls", ("late",), bench.now)
    assert stream(bench).awaits == (), "its next turn runs already"
    bench.drain()


def test_conversations_of_one_cache_key_keep_their_ends() -> None:
    """Four blocks in common and three of its own each, on a device that has room for both."""
    bench = Bench(num_blocks=24)
    ends = {letter: prompt(1, 64) + [letter] * 49 for letter in (7, 8)}
    for turn in range(3):
        for letter, tokens in ends.items():
            id = turn * 10 + letter
            run(bench, id, tokens + [letter] * turn, 1, session_id="key", session_is_shared=True)
    sessions = bench.engine.cache_report(bench.now).sessions
    assert [(row.session_id, row.num_tokens) for row in sessions] == [("key", 112)] * 2


def test_a_turn_that_is_stopped_early_does_not_shrink_its_conversation() -> None:
    """Of 20 blocks, all but one of them in the new turn too: it is stopped after four of them."""
    policy = Favourites()
    bench = Bench(policy=policy, num_blocks=64, max_num_batched_tokens=64)
    long = prompt(1, 16 * 20)
    run(bench, 1, long + [7], 1, session_id="s")
    keys = stream(bench).keys()
    bench.engine._board.kv.index.evict(20, bench.now, None)
    bench.submit(make_request(2, long[:-16] + prompt(2, 17), 1, session_id="s"))
    bench.step()
    bench.engine.finish(2, 0, bench.now)
    bench.drain()
    assert stream(bench).keys() == keys
    assert policy.heard[-1] == ("end", "s", 20, "")
