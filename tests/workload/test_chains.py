"""Conversations told apart in a flat row of calls."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from samovar.workload.chains import place, split_conversations, unmarked_streams
from samovar.workload.reading import read_session
from samovar.workload.session import Stream, Turn, common_prefix
from tests.workload.brute_force import Access
from tests.workload.made_up import BLOCK, loads, session_of, turn


def _ids(streams: list[Stream]) -> list[tuple[str, list[float]]]:
    return [(stream.role, [t.start_s for t in stream.turns]) for stream in streams]


def test_interleaved_agents_are_told_apart() -> None:
    big = list(range(100, 400))
    turns = [
        turn(0, 1, [1, 2], tokens=8 * 5000),
        turn(2, 3, big, tokens=5000 * 8),
        turn(4, 5, [1, 2, 3]),
        turn(6, 7, [*big, 900]),
        turn(8, 9, [1, 2, 3, 4]),
    ]
    turns[0] = turn(0, 1, [1, 2])
    turns[1] = turn(2, 3, big)
    streams = unmarked_streams(turns, BLOCK)
    assert _ids(streams) == [("main", [2, 6]), ("subagent", [0, 4, 8])]
    assert streams[1].parent == "main"
    assert streams[1].id == "unmarked-001"


def test_a_compacted_context_goes_on() -> None:
    turns = [
        turn(0, 1, [1, 2, 3, 4, 5, 6]),
        turn(2, 3, [1, 2, 3, 4, 5, 6, 7]),
        turn(9, 10, [1, 20]),
        turn(12, 13, [1, 20, 21]),
    ]
    assert _ids(unmarked_streams(turns, BLOCK)) == [("main", [0, 2, 9, 12])]


def test_a_cut_that_the_old_context_outlives_is_another_agent() -> None:
    turns = [turn(0, 1, [1, 2, 3, 4]), turn(2, 3, [1, 20]), turn(4, 5, [1, 20, 21]), turn(6, 7, [1, 2, 3, 4, 5])]
    streams = unmarked_streams(turns, BLOCK)
    assert _ids(streams) == [("main", [0, 6]), ("subagent", [2, 4])]
    assert (streams[1].spawn_turn, streams[1].join_turn) == (0, 1)


def test_a_call_to_another_model_is_no_continuation() -> None:
    long = list(range(50, 80))
    turns = [turn(0, 1, long), turn(2, 3, [*long, 1], model="small"), turn(4, 5, [*long, 2])]
    streams = unmarked_streams(turns, BLOCK)
    assert _ids(streams) == [("main", [0, 4]), ("aux", [2])]
    assert streams[1].join_turn is None


def test_nothing_continues_a_call_in_flight() -> None:
    turns = [turn(0, 10, [1, 2]), turn(5, 6, [1, 2, 3])]
    assert len(split_conversations(turns, BLOCK)) == 2


def test_a_partial_block_is_cut_anew() -> None:
    turns = [turn(0, 1, [1, 2, 3], tokens=2 * BLOCK + 1), turn(2, 3, [1, 2, 8, 9], tokens=4 * BLOCK)]
    assert len(split_conversations(turns, BLOCK)) == 1


@settings(deadline=None)
@given(loads())
def test_every_call_lands_in_one_stream(accesses: list[Access]) -> None:
    turns = list(session_of(accesses).main.turns)
    streams = unmarked_streams(turns, BLOCK)
    found = [t for stream in streams for t in stream.turns]
    assert sorted(map(id, found)) == sorted(map(id, turns))
    assert streams[0].role == "main"
    for stream in streams:
        assert [t.start_s for t in stream.turns] == sorted(t.start_s for t in stream.turns)
    for chain in split_conversations(turns, BLOCK):
        for before, after in pairwise(chain):
            full = min(len(before.blocks), before.input_tokens // BLOCK)
            assert common_prefix(before.blocks, after.blocks) >= full


@settings(deadline=None)
@given(loads(most=2))
def test_common_prefix(accesses: list[Access]) -> None:
    turns = session_of(accesses).main.turns
    a, b = turns[0].blocks, turns[-1].blocks
    plain = 0
    while plain < min(len(a), len(b)) and a[plain] == b[plain]:
        plain += 1
    assert common_prefix(a, b) == plain


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=6), st.floats(0, 100), st.floats(0, 50))
def test_a_place_in_the_tree_is_consistent(starts: list[float], start_s: float, length_s: float) -> None:
    parent = Stream("main", "main", tuple(turn(s, s + 1, [1]) for s in sorted(starts)))
    child = Stream("c", "subagent", (turn(start_s, start_s + length_s, [2]),))
    placed = place(child, parent, child.end_s, waited_for=True)
    if placed.spawn_turn is not None and placed.join_turn is not None:
        assert placed.spawn_turn < placed.join_turn
    if placed.join_turn is not None:
        assert parent.turns[placed.join_turn].start_s >= child.end_s - 1


@pytest.mark.parametrize(("name", "found"), [("0348", [("subagent", 8)]), ("0579", []), ("0047", [])])
def test_agents_in_real_traces(real_traces: Path, name: str, found: list[tuple[str, int]]) -> None:
    session = read_session(real_traces / f"trace_{name}.json")
    assert [(s.role, len(s.turns)) for s in session.streams[1:]] == found
    first: Turn = session.main.turns[0]
    assert first.start_s == 0
