"""Gaps between tokens, as clients see them: one piece a step for each request that decodes."""

from __future__ import annotations

import pytest

from tests.sim.runs import engine, lone_call, run, two_times


def test_every_piece_counts_once() -> None:
    """A prompt of two steps beside one that decodes: its first token ends the second one."""
    made = run(
        [lone_call("a", 64, 6), lone_call("b", 1024, 4)], two_times(1.0, 0.25), engine(max_num_batched_tokens=1088)
    )
    pieces = made.steps.pieces
    # Step 1 computes both prompts; then both decode, 5 and 3 more tokens.
    assert (pieces.count, pieces.p50_s, pieces.p90_s) == (8, 0.25, 0.25)
    assert pieces.seconds == pytest.approx(8 * 0.25)


def test_a_prompt_is_a_gap_for_those_that_decode() -> None:
    made = run(
        [lone_call("a", 64, 4), lone_call("b", 2048, 1)],
        two_times(1.0, 0.25),
        engine(max_num_batched_tokens=1024, depth=1),
    )
    pieces = made.steps.pieces
    # The first prompt and 960 tokens of the second; the rest of it in two steps, beside which the first decodes.
    assert made.steps.group["mixed"].count == 2
    assert (pieces.count, pieces.p90_s) == (3, 1.0) and pieces.seconds == pytest.approx(2 * 1.0 + 0.25)
