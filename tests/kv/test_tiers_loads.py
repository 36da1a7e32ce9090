"""Loads from the host tier and from disk, what is brought up ahead of them, and what is found wrong."""

from __future__ import annotations

import pytest

from samovar.core.ports import Reserved
from tests.kv.tier_driver import A, B, C, Worth, driver, lose_host, on_disk


def test_a_load_pins_what_it_reads_until_it_is_reported() -> None:
    d = driver(host=3)
    stored = d.store(A[:3])[1]
    assert d.load(A[:2]) == Reserved(stored.slots[:2], stored.generations[:2])
    d.store(B[:3], report=False)
    assert d.has(A)["host"] == 2, "only what is not pinned made room"
    d.done(d.last)
    d.done(2)
    assert sum(d.tiers._host.pool.refs) == 0


def test_what_only_the_disk_has_passes_through_the_host_and_stays_in_both() -> None:
    d = driver(host=5)
    on_disk(d, A[:5])
    lose_host(d, 3)
    assert [(s.tier, s.num_blocks) for s in d.tiers.lookup(A, 0.0).shares] == [("host", 2), ("disk", 3)]
    place = d.load(A[:4])
    assert len(place.slots) == 4 and place.from_disk == 2
    assert d.has(A) == {"host": 2, "disk": 5}
    d.done(d.last)
    assert d.has(A) == {"host": 4, "disk": 5}
    host, disk = d.tiers.report()
    assert (host.loaded_blocks, disk.loaded_blocks) == (2, 2)


def test_a_chain_whose_beginning_the_host_lacks_passes_through_and_does_not_stay() -> None:
    d = driver(host=5)
    on_disk(d, A[:5])
    lose_host(d, 5)
    place = d.load(A[2:5])
    assert place.from_disk == 3
    d.done(d.last)
    assert d.has(A) == {"host": 0, "disk": 5} and d.tiers._host.pool.num_free == 5


def test_a_load_gets_as_many_slots_as_there_are() -> None:
    d = driver(host=3)
    d.tiers.restore([(key, key[:-1], "s") for key in A[:5]])
    assert d.tiers.lookup(A, 0.0).num_blocks == 3
    d.store(B[:1], report=False)
    assert d.tiers.lookup(A, 0.0).num_blocks == 2
    assert len(d.load(A[:5]).slots) == 2
    assert d.load(A[:5]) == Reserved()


def test_records_that_are_being_read_are_not_deleted() -> None:
    d = driver(host=8, disk=3)
    on_disk(d, A[:3])
    lose_host(d, 3)
    d.load(A[:3])
    loading = d.last
    d.now = 1.0
    d.store(B[:2], "t")
    d.end_turn(B[:2], "t")
    assert d.moves() == [] and d.has(A)["disk"] == 3
    d.done(loading)
    assert d.has(A) == {"host": 3, "disk": 3}


def test_two_loads_of_the_same_blocks_from_disk() -> None:
    d = driver(host=6)
    d.tiers.restore([(key, key[:-1], "s") for key in A[:3]])
    first, second = d.load(A[:3]), d.load(A[:3])
    assert not set(first.slots) & set(second.slots)
    d.done(2)
    assert d.has(A)["host"] == 0, "the second only passes through"
    d.done(1)
    assert d.has(A)["host"] == 3 and d.tiers._host.pool.num_free == 3


@pytest.mark.parametrize("reason", ["generation", "checksum", "missing", "io"])
def test_a_bad_block_is_forgotten_with_what_follows_it(reason: str) -> None:
    d = driver()
    on_disk(d, A[:5])
    d.load(A[:5])
    d.done(d.last, (2, 3, 4), reason)
    assert d.has(A) == {"host": 2, "disk": 5}
    assert d.failed("host") == {reason: 1, "cancelled": 2}
    lose_host(d, 2)
    d.load(A[:5])
    d.done(d.last, (1, 2, 3, 4), reason)
    assert d.has(A) == {"host": 1, "disk": 1}
    assert [move.keys for move in d.settle()] == [A[1:2]], "on the disk what follows waits for it"
    d.store(A[:5])
    assert [move.keys for move in d.settle()] == [A[1:2]] and d.has(A) == {"host": 5, "disk": 5}


def test_a_late_load_forgets_nothing() -> None:
    d = driver()
    on_disk(d, A[:4])
    lose_host(d, 2)
    d.load(A[:4])
    d.done(d.last, (0, 1, 2, 3), "late", 30.0)
    assert d.has(A) == {"host": 2, "disk": 4} and d.failed("host") == {"late": 1, "cancelled": 3}
    d.load(A[:4])
    d.done(d.last)
    assert d.has(A) == {"host": 4, "disk": 4}


def test_a_hundred_aborted_loads_leave_no_pin() -> None:
    d = driver(host=8)
    on_disk(d, A)
    for i in range(100):
        lose_host(d, 4)
        d.load(A)
        d.done(d.last, tuple(range(i % 9, 8)), "cancelled")
        assert sum(d.tiers._host.pool.refs) == sum(d.tiers._disk.pool.refs) == 0


def test_a_wanted_chain_comes_up_and_stays_on_disk() -> None:
    d = driver(host=8)
    on_disk(d, A)
    lose_host(d, 5)
    d.tiers.wanted(A, d.now)
    assert d.tiers.wake_at == d.now
    (move,) = d.moves()
    assert (move.op, move.keys) == ("read", A[3:]) and len(set(move.slots)) == 5
    d.tiers.wanted(A, d.now)
    assert d.moves() == [], "it is on its way"
    d.done(move.transfer_id, seconds=0.01)
    assert d.has(A) == {"host": 8, "disk": 8}


def test_a_wanted_chain_evicts_nothing_that_is_worth_more() -> None:
    policy = Worth({"high": 2.0, "mid": 1.0, "low": 0.0})
    d = driver(host=6, policy=policy)
    on_disk(d, A[:4], "mid")
    lose_host(d, 4)
    d.store(B[:3], "high")
    d.store(C[:3], "low")
    d.tiers.wanted(A, d.now)
    (move,) = d.moves("read")
    assert move.keys == A[:3]
    d.done(move.transfer_id)
    assert (d.has(A)["host"], d.has(B)["host"], d.has(C)["host"]) == (3, 3, 0)
    assert d.settle() == []


def test_a_wanted_block_that_cannot_be_read_is_dropped_and_not_tried_again() -> None:
    d = driver(host=8)
    on_disk(d, A)
    lose_host(d, 4)
    d.tiers.wanted(A, d.now)
    (move,) = d.moves()
    d.done(move.transfer_id, (1,), "checksum")
    assert d.has(A) == {"host": 5, "disk": 5} and d.failed("disk") == {"checksum": 1}
    assert [move.op for move in d.settle()] == ["delete"]


def test_a_load_does_not_wait_for_a_chain_that_is_coming_up() -> None:
    d = driver(host=12)
    on_disk(d, A[:4])
    lose_host(d, 4)
    d.tiers.wanted(A, d.now)
    (move,) = d.moves()
    place = d.load(A[:4])
    assert len(place.slots) == 4 and not set(place.slots) & set(move.slots)
    d.done(d.last)
    d.done(move.transfer_id)
    assert d.has(A)["host"] == 4 and d.tiers._host.pool.num_free == 8


def test_what_turned_out_to_be_wrong_is_given_to_nobody() -> None:
    d = driver()
    on_disk(d, A[:4])
    d.store(A[:6])
    d.end_turn(A[:6])
    (write,) = d.moves("write")
    d.store(A[:8], report=False)
    d.tiers.distrust(A[2:8], d.now)
    assert d.has(A) == {"host": 2, "disk": 2}
    d.done(write.transfer_id)
    d.done(d.last)
    assert d.has(A) == {"host": 2, "disk": 2} and d.failed("host")["differs"] == 4
    assert {key for move in d.settle() for key in move.keys if move.op == "delete"} == set(A[2:6])
    assert d.store(A[:8])[0] == (2, 3, 4, 5, 6, 7)


def test_what_is_wrong_and_still_on_its_way_never_arrives() -> None:
    d = driver()
    d.store(A[:2])
    d.end_turn(A[:2])
    (write,) = d.moves("write")
    d.store(A[:4], report=False)
    d.tiers.distrust(A[2:4], d.now)
    d.tiers.distrust(A[:1], d.now)
    d.done(d.last)
    d.done(write.transfer_id)
    assert d.has(A) == {"host": 0, "disk": 0} and d.not_durable() == 2
    assert [(move.op, move.keys) for move in d.settle()] == [("delete", A[:2])]
    d.tiers.distrust(A[:1], d.now)
    d.store(A[:2])
    d.store(A[:4], report=False)
    d.tiers.distrust(A[3:4], d.now)
    d.done(d.last)
    assert d.has(A)["host"] == 3
