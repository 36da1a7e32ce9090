"""Which sessions fit a context, and what cutting leaves of them."""

from __future__ import annotations

import pytest

from samovar.base.errors import ConfigError
from samovar.workload.replay_fit import cut_to, fit, peak_tokens
from samovar.workload.replay_script import script_of
from tests.workload.replay_trees import main_stream, subagent, tree, turn


def grown(*sizes: int) -> list[tuple[float, float, list[int], int]]:
    return [(10.0 * n, 10.0 * n + 1, [], size) for n, size in enumerate(sizes)]


LONG = tree(
    main_stream(*(turn(*args) for args in grown(100, 200, 300, 400))),
    subagent("early", 0, 3, *(turn(*args) for args in grown(50, 350, 60))),
    subagent("late", 2, None, turn(25, 26, [], 10)),
    subagent("inner", 0, None, turn(5, 6, [], 10), parent="late"),
    name="long",
)
SHORT = tree(main_stream(turn(0, 1, [], 90)), name="short")


def test_the_peak_is_prompt_and_answer_together() -> None:
    assert peak_tokens(LONG) == 405


def test_skipping_leaves_whole_sessions_out() -> None:
    fitted = fit([LONG, SHORT], 404, "skip")
    assert [t.id for t in fitted.trees] == ["short"]
    assert fitted.skipped == ("long",)
    assert fit([LONG, SHORT], 405, "skip").skipped == ()


def test_cutting_ends_each_agent_before_what_does_not_fit_and_drops_whom_nobody_starts() -> None:
    fitted = fit([LONG, SHORT], 205, "cut")
    assert fitted.skipped == ()
    assert fitted.cut == {"long": 6}
    long = fitted.trees[0]
    assert [(s.id, len(s.turns), s.join_turn) for s in long.streams] == [("main", 2, None), ("early", 1, None)]
    assert peak_tokens(long) <= 205
    script_of(long)


def test_a_main_agent_whose_first_call_is_too_long_leaves_nothing_to_cut() -> None:
    assert cut_to(LONG, 104) is None
    assert fit([LONG, SHORT], 100, "cut").skipped == ("long",)


def test_when_nothing_fits_the_message_has_limit_smallest_need_and_a_scale_that_fits() -> None:
    with pytest.raises(
        ConfigError, match=r"none of 1 sessions fits the context of 100 tokens \(the smallest needs 405\)"
    ):
        fit([LONG], 100, "skip")
    with pytest.raises(ConfigError, match=r"--scale 0.125$"):
        fit([LONG], 100, "skip")
    with pytest.raises(ConfigError, match="no sessions to replay"):
        fit([], 100, "skip")
