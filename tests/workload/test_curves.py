"""Cache curves over pieces against simulations that look at every block."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
import numpy as np

from samovar.workload.curves import CapacityCurves, capacity_grid, in_lanes, keep_warm_hits
from samovar.workload.load import make_load
from samovar.workload.reuse import find_reuse
from tests.workload import brute_force
from tests.workload.brute_force import Access
from tests.workload.made_up import BLOCK, loads, session_of

EVERY = tuple(range(0, 30))


@settings(deadline=None)
@given(loads())
def test_ceiling(accesses: list[Access]) -> None:
    load = make_load([session_of(accesses)])
    assert load.hit_tokens.tolist() == brute_force.infinite_hits(accesses)
    assert int(load.piece_tokens().sum()) == int(load.hit_tokens.sum())


LOST_IN_FRONT = [
    # The long call ends last, but its shallow blocks were used again by one that ended before.
    Access(0.0, 3.0, (0, 1), 8),
    Access(1.0, 1.5, (0, 2), 8),
    Access(5.0, 5.0, (0, 1), 8),
]


@settings(deadline=None)
@example(LOST_IN_FRONT)
@given(loads())
def test_keep_warm(accesses: list[Access]) -> None:
    load = make_load([session_of(accesses)])
    survive = (0.0, 0.5, 1.0, 2.0, 3.0, 7.0, 1e9)
    assert keep_warm_hits(load, survive).tolist() == [brute_force.keep_warm_hits(accesses, s) for s in survive]


@settings(deadline=None)
@given(loads())
def test_lru(accesses: list[Access]) -> None:
    curves = CapacityCurves(make_load([session_of(accesses)]), np.zeros(1))
    found = curves.lru([BLOCK * blocks for blocks in EVERY]).tolist()
    assert found == [brute_force.lru_hits(accesses, blocks) for blocks in EVERY]


@settings(deadline=None)
@given(loads())
def test_optimum(accesses: list[Access]) -> None:
    curves = CapacityCurves(make_load([session_of(accesses)]), np.zeros(1))
    found = curves.optimal([BLOCK * blocks for blocks in EVERY]).tolist()
    assert found == [brute_force.belady_hits(accesses, blocks) for blocks in EVERY]


@settings(max_examples=60, deadline=None)
@given(loads(most=5, longest=3, words=2), st.integers(1, 5))
def test_nothing_beats_the_optimum(accesses: list[Access], blocks: int) -> None:
    whole = [Access(a.start_s, a.end_s, a.ids, len(a.ids) * BLOCK) for a in accesses]
    curves = CapacityCurves(make_load([session_of(whole)]), np.zeros(1))
    assert curves.optimal([BLOCK * blocks])[0] == BLOCK * brute_force.best_hits(whole, blocks)


@settings(deadline=None)
@given(st.lists(loads(most=6), min_size=1, max_size=4), st.integers(1, 3))
def test_sessions_share_a_cache_in_lanes(loads_: list[list[Access]], lanes: int) -> None:
    sessions = [session_of(accesses, f"s{at}") for at, accesses in enumerate(loads_)]
    load = make_load(sessions)
    free, merged = [0.0] * lanes, []
    for at, accesses in enumerate(loads_):
        first = min(a.start_s for a in accesses)
        lane = free.index(min(free))
        for a in accesses:
            ids = tuple(1000 * at + block for block in a.ids)
            merged.append(Access(free[lane] + a.start_s - first, 0.0, ids, a.tokens))
        free[lane] += max(a.end_s for a in accesses) - first
    merged.sort(key=lambda a: a.start_s)
    curves = CapacityCurves(load, in_lanes(load, lanes))
    wanted = [brute_force.lru_hits(merged, blocks) for blocks in EVERY]
    assert curves.lru([BLOCK * blocks for blocks in EVERY]).tolist() == wanted
    wanted = [brute_force.belady_hits(merged, blocks) for blocks in EVERY]
    assert curves.optimal([BLOCK * blocks for blocks in EVERY]).tolist() == wanted


@settings(deadline=None)
@given(loads())
def test_grid_reaches_the_ceiling(accesses: list[Access]) -> None:
    load = make_load([session_of(accesses)])
    grid = capacity_grid(load)
    curves = CapacityCurves(load, np.zeros(1))
    ceiling = int(load.hit_tokens.sum())
    assert grid == sorted(set(grid))
    assert all(size % BLOCK == 0 for size in grid)
    assert curves.lru(grid[-1:])[0] == curves.optimal(grid[-1:])[0] == ceiling


def test_ids_far_apart_and_negative() -> None:
    prompts = [np.array(ids, dtype=np.int64) for ids in ([-5, 2**62, 9], [-5, 2**62, 10], [], [-5])]
    found = find_reuse(prompts)
    assert found.hit_blocks.tolist() == [0, 2, 0, 1]
    assert found.new_blocks == 4
    assert list(zip(found.call.tolist(), found.source.tolist(), found.stop.tolist(), strict=True)) == [
        (1, 0, 2),
        (3, 1, 1),
    ]


def test_unchained_ids_are_counted_and_missed() -> None:
    prompts = [np.array(ids, dtype=np.int64) for ids in ([1, 2, 3], [1, 9, 3])]
    found = find_reuse(prompts)
    assert found.hit_blocks.tolist() == [0, 1]
    assert found.unchained_blocks == 1
