"""Writes of one turn hold its chain together, in whatever order they end."""

from __future__ import annotations

from itertools import permutations

import pytest

from samovar.kv.tier import Tier
from samovar.kv.under_way import UnderWay
from samovar.kv.write_holds import WriteHolds
from samovar.policy.lru import LRU
from tests.kv.tier_world import chain

A, B = chain([0, 0, 0, 0, 0, 0]), chain([0, 0, 1, 1, 1, 1])


def tier() -> Tier:
    made = Tier("host", 12, LRU(), lambda key, depth: 1.0)
    for keys in (A, B):
        known = made.match(keys)
        fillings = [made.fill(keys[i], keys[i - 1] if i else b"", "s") for i in range(known, len(keys))]
        made.landed(fillings, 0.0)
    return made


def held(host: Tier, keys: tuple[bytes, ...]) -> list[int]:
    return [host.pool.refs[host.index.chain(key, 1)[0]] for key in keys]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_is_before_the_last_one_under_way_stays(order: tuple[int, ...]) -> None:
    host = tier()
    holds = WriteHolds(host)
    ends = (2, 4, 5)
    writes = [UnderWay("write", A[end - 2 : end], cause="turn") for end in ends]
    for write in writes:
        holds.hold(write)
        holds.check()
    assert held(host, A) == [1, 1, 1, 1, 1, 0] and [len(write.host_held) for write in writes] == [2, 2, 1]
    left = set(range(3))
    for number in order:
        holds.let_go(writes[number])
        holds.check()
        left.remove(number)
        last = ends[max(left)] if left else 0
        assert held(host, A) == [1] * last + [0] * (6 - last)
    assert len(holds) == 0


def test_a_turn_that_goes_another_way_holds_its_own_chain() -> None:
    host = tier()
    holds = WriteHolds(host)
    one, other, on = (UnderWay("write", keys, cause="turn") for keys in (A[:4], B[2:5], B[5:6]))
    for write in (one, other, on):
        holds.hold(write)
        holds.check()
    assert held(host, A) == [2, 2, 1, 1, 0, 0] and held(host, B) == [2, 2, 1, 1, 1, 1]
    for write in (other, one):
        holds.let_go(write)
        holds.check()
    assert held(host, A) == [1, 1, 0, 0, 0, 0] and held(host, B) == [1, 1, 1, 1, 1, 1]
    holds.let_go(on)
    assert held(host, B) == [0] * 6 and len(holds) == 0
