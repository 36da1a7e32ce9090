"""What goes to disk, in which order, what becomes of failures, and what a restart finds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from samovar.kv.admission_to_disk import RETRY_S
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.kv.tier_driver import A, B, C, Worth, driver, lose_host, on_disk
from tests.kv.tier_world import chain


def test_a_turn_is_written_at_once_and_durable_when_reported() -> None:
    d = driver()
    d.store(A[:4])
    d.end_turn(A[:4])
    assert d.not_durable() == 4 and d.tiers.wake_at == 0.0
    (move,) = d.moves()
    assert (move.op, move.keys, move.parents, move.stream) == ("write", A[:4], (b"", *A[:3]), "s")
    assert move.transfer_id < 0 and move.generations == (1, 2, 3, 4)
    assert d.moves() == [] and d.not_durable() == 4
    d.done(move.transfer_id)
    assert d.not_durable() == 0 and d.has(A)["disk"] == 4 and d.tiers.wake_at is None


def test_the_next_turn_writes_only_what_is_new() -> None:
    d = driver()
    on_disk(d, A[:3])
    d.store(A[:5])
    d.end_turn(A[:5])
    assert [move.keys for move in d.settle()] == [A[3:5]]


def test_a_block_still_on_its_way_to_the_host_is_written_when_it_is_there() -> None:
    d = driver()
    d.store(A[:2])
    d.store(A[:3], report=False)
    d.end_turn(A[:3])
    (move,) = d.moves()
    assert move.keys == A[:2]
    d.done(move.transfer_id)
    assert d.moves() == []
    d.done(2)
    assert [move.keys for move in d.settle()] == [A[2:3]]


def test_a_written_block_is_pinned_until_it_is_reported() -> None:
    d = driver(host=2)
    d.store(A[:2])
    d.end_turn(A[:2])
    (move,) = d.moves()
    assert d.store(B[:2])[0] == ()
    d.done(move.transfer_id)
    assert d.store(B[:2])[0] == (0, 1)


def test_the_end_of_a_write_is_no_use_and_a_turn_meanwhile_is_one() -> None:
    d = driver(host=6)
    for keys, stream in ((A, "a"), (B, "b")):
        d.store(keys[:2], stream)
        d.end_turn(keys[:2], stream)
    writes = d.moves()
    assert len(writes) == 2
    d.now = 1.0
    d.store(C[:2], "c")
    d.end_turn(A[:2], "a")
    d.now = 2.0
    for write in writes:
        d.done(write.transfer_id)
    lose_host(d, 2)
    assert [d.has(keys)["host"] for keys in (A, B, C)] == [2, 0, 2]
    lose_host(d, 2)
    assert [d.has(keys)["host"] for keys in (A, B, C)] in ([2, 0, 0], [0, 0, 2])


def test_the_most_valuable_conversation_is_written_first() -> None:
    d = driver(policy=Worth({"high": 2.0, "mid": 1.0, "low": 0.0}))
    for keys, stream in ((A, "mid"), (B, "low"), (C, "high")):
        d.store(keys[:2], stream)
        d.end_turn(keys[:2], stream)
    assert [move.stream for move in d.moves()] == ["high", "mid", "low"]


def test_within_the_budget_everything_is_durable_within_two_seconds() -> None:
    """64 blocks of 1 MB at once, with a budget of 40 MB/s and nothing saved up."""
    d = driver(100, 100, block_bytes=10**6, write_bytes_per_s=40e6, write_burst_bytes=8e6)
    keys = [bytes([i]) for i in range(64)]
    d.store(keys)
    d.end_turn(keys)
    written = 0
    while d.not_durable():
        while moves := d.moves():
            for move in moves:
                written += len(move.keys)
                assert written <= 8 + 40 * d.now + 1e-6, "over budget"
                d.done(move.transfer_id)
        if d.not_durable():
            assert d.tiers.wake_at is not None and d.tiers.wake_at > d.now
            d.now = d.tiers.wake_at
    assert 1.3 < d.now <= 2.0 and d.tiers.wake_at is None


def test_a_spent_budget_wakes_up_when_the_next_batch_is_allowed() -> None:
    d = driver(block_bytes=1000, write_bytes_per_s=1000.0, write_burst_bytes=2000)
    d.store(A)
    d.end_turn(A)
    (move,) = d.moves()
    assert len(move.keys) == 2
    d.done(move.transfer_id)
    assert d.moves() == [] and d.tiers.wake_at == pytest.approx(2.0, abs=1.1)
    assert d.not_durable() == 6


@dataclass
class Counting(Worth):
    num_asked: int = 0

    def value(self, leaf: Leaf, now: float) -> float:
        self.num_asked += 1
        return super().value(leaf, now)


def test_turns_that_the_budget_cannot_take_are_not_looked_at_until_it_can() -> None:
    """A block that may be written, of three that are worth a commit."""
    policy = Counting({"a": 1.0, "b": 1.0, "c": 1.0})
    d = driver(policy=policy, block_bytes=1 << 20, write_bytes_per_s=1e6, write_burst_bytes=16 << 20)
    for keys, stream in ((A, "a"), (B, "b")):
        d.store(keys, stream)
        d.end_turn(keys, stream)
        d.settle()
    d.store(C, "c")
    d.end_turn(C, "c")
    d.now = 2.0
    assert d.moves() == [] and d.tiers.wake_at == pytest.approx(3.15, abs=0.01)
    before = policy.num_asked
    d.now = 2.5
    assert d.moves() == [] and policy.num_asked == before and d.tiers.wake_at == pytest.approx(3.15, abs=0.01)
    d.now = d.tiers.wake_at
    assert [len(move.keys) for move in d.moves()] == [3]


def test_a_turn_given_up_for_the_budget_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its start, which others share, is on disk."""
    monkeypatch.setattr("samovar.kv.admission_to_disk.MOST_TURNS", 2)
    d = driver(write_bytes_per_s=1.0, write_burst_bytes=10)
    d.store(A[:1])
    d.end_turn(A[:1])
    d.settle()
    for n in range(5):
        keys = chain([1, n, n])
        d.store(keys, str(n))
        d.end_turn(keys, str(n))
    assert len(d.tiers._admission._turns) == 2 and d.not_durable() == 4 and d.failed("disk") == {"budget": 6}


def test_the_budget_is_lifted_at_the_end() -> None:
    d = driver(write_bytes_per_s=1.0, write_burst_bytes=10)
    d.store(A)
    d.end_turn(A)
    d.settle()
    assert d.not_durable() == 7
    d.tiers.lift_budget(d.now)
    assert d.tiers.wake_at == d.now
    d.settle()
    assert d.not_durable() == 0


def test_a_turn_that_is_not_kept_is_not_written_and_goes_first() -> None:
    d = driver(host=6)
    d.store(A[:4])
    d.end_turn(A[:4])
    d.now = 1.0
    d.end_turn(A[:4], keep=False)
    assert d.moves() == [] and d.not_durable() == 0
    d.now = 2.0
    d.store(B[:2], "t")
    d.store(C[:3], "u")
    assert (d.has(A)["host"], d.has(B)["host"], d.has(C)["host"]) == (1, 2, 3)


@pytest.mark.parametrize("part", [1, 3])
def test_a_turn_that_was_stopped_early_leaves_what_the_one_before_it_had_to_write(part: int) -> None:
    d = driver()
    d.store(A[:4])
    d.end_turn(A[:4])
    d.end_turn(A[:part])
    assert d.not_durable() == 4
    d.settle()
    assert d.has(A)["disk"] == 4


def test_a_turn_that_replaces_another_is_written_in_its_place() -> None:
    d = driver()
    other = chain([1, 1, 7])
    for keys in (A[:4], other):
        d.store(keys)
        d.end_turn(keys)
    assert d.not_durable() == 3
    d.settle()
    assert d.has(A)["disk"] == 2 and d.has(other)["disk"] == 3


def test_what_a_newer_turn_cut_off_goes_first_in_every_tier() -> None:
    """Six blocks; the new prompt shares two of them."""
    d = driver(host=8, disk=8)
    on_disk(d, B[:2], "old")
    d.now = 1.0
    on_disk(d, A[:6])
    d.now = 2.0
    d.end_turn(A[2:6], keep=False)
    d.now = 3.0
    for keys, stream in ((chain([1, 1, 9]), "s"), (C[:3], "t")):
        d.store(keys, stream)
        d.end_turn(keys, stream)
    d.settle()
    assert d.has(A) == {"host": 2, "disk": 2}
    assert d.has(B) == {"host": 2, "disk": 2} and d.has(C) == {"host": 3, "disk": 3}


def test_what_is_cut_off_while_it_is_written_goes_first_too() -> None:
    d = driver(host=6)
    d.store(B[:2], "old")
    d.now = 1.0
    d.store(A[:4])
    d.end_turn(A[:4])
    (move,) = d.moves()
    d.end_turn(A[2:4], keep=False)
    d.done(move.transfer_id)
    d.store(C[:2], "t")
    assert (d.has(A)["host"], d.has(B)["host"], d.has(C)["host"]) == (2, 2, 2)


def test_shared_blocks_are_written_for_whoever_keeps_them() -> None:
    d = driver()
    shared, other = A[:4], chain([1, 1, 7])
    d.store(shared, "s")
    d.store(other, "t")
    d.end_turn(shared, "s")
    d.end_turn(other, "t")
    d.end_turn(shared, "s", keep=False)
    d.settle()
    assert d.has(other)["disk"] == 3 and d.has(A)["disk"] == 2


def test_blocks_that_lost_their_slot_before_they_were_written_are_counted() -> None:
    d = driver(host=3, write_bytes_per_s=10.0, write_burst_bytes=10)
    d.store(A[:3])
    d.end_turn(A[:3])
    d.done(d.moves()[0].transfer_id)
    d.now = 1.0
    d.store(B[:2])
    d.now = 50.0
    d.settle()
    assert d.not_durable() == 0 and d.failed("disk") == {"lost": 2} and d.has(A)["disk"] == 1


def test_a_failed_write_waits_for_the_disk_and_is_tried_again() -> None:
    """The third of four fails: one error, no pin left, nothing lost."""
    d = driver()
    for i, keys in enumerate((A, B, C, chain([4]))):
        d.store(keys[:1], str(i))
        d.end_turn(keys[:1], str(i))
        for move in d.moves("write"):
            d.done(move.transfer_id, (0,) if i == 2 else (), "io" if i == 2 else "")
    assert d.not_durable() == 2 and d.moves() == [] and d.tiers.wake_at == 0.5
    d.now = 0.5
    assert [move.keys for move in d.settle()] == [C[:1], chain([4])]
    assert d.failed("disk") == {"io": 1} and sum(d.tiers._host.pool.refs) == 0 and d.not_durable() == 0


def test_a_disk_that_keeps_failing_is_tried_less_and_less_often() -> None:
    d = driver()
    d.store(A[:2])
    d.end_turn(A[:2])
    times = []
    while d.now < 200.0:
        (move,) = d.moves()
        times.append(d.now)
        d.done(move.transfer_id, (0, 1), "io")
        assert d.moves() == [] and d.not_durable() == 2 and d.tiers.wake_at is not None
        d.now = d.tiers.wake_at
    assert times == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5, 183.5]
    d.settle()
    assert d.not_durable() == 0
    d.store(B[:1])
    d.end_turn(B[:1])
    d.done(d.moves()[0].transfer_id, (0,), "io")
    d.moves()
    assert d.tiers.wake_at == d.now + 0.5, "from the start again"


def test_records_behind_a_failed_write_are_deleted_and_written_again() -> None:
    d = driver()
    d.store(A[:4])
    d.end_turn(A[:4])
    d.done(d.moves()[0].transfer_id, (1,), "io")
    assert d.has(A)["disk"] == 1 and d.not_durable() == 3
    assert [(move.op, move.keys) for move in d.settle()] == [("delete", A[2:4])]
    assert d.failed("disk") == {"io": 1, "lost": 2}
    d.now = 0.5
    assert [(move.op, move.keys) for move in d.settle()] == [("write", A[1:4])] and d.not_durable() == 0


def test_a_disk_that_lost_all_begins_again_with_the_turns_that_wait() -> None:
    d = driver(block_bytes=8 << 20)  # four to a batch
    on_disk(d, B[:3], "old")
    d.store(A[:6])
    d.end_turn(A[:6])
    first, second = d.moves()
    d.done(first.transfer_id)
    d.done(second.transfer_id, (0, 1), "gone")
    assert d.has(A)["disk"] == 0 and d.has(B)["disk"] == 0 and d.not_durable() == 6
    assert d.failed("disk") == {"gone": 7}
    assert d.moves() == []
    d.now = 0.5
    assert [(move.op, move.keys) for move in d.settle()] == [("write", A[:4]), ("write", A[4:6])]
    assert d.not_durable() == 0
    d.end_turn(B[:3], "old")
    assert [move.keys for move in d.settle()] == [B[:3]]


def test_what_was_under_way_when_all_was_lost_is_deleted_when_it_arrives() -> None:
    d = driver(block_bytes=8 << 20)
    d.store(A[:6])
    d.end_turn(A[:6])
    first, second = d.moves()
    d.done(first.transfer_id, tuple(range(4)), "gone")
    d.done(second.transfer_id)
    assert [(move.op, move.keys) for move in d.settle()] == [("delete", A[4:6])]
    d.now = 0.5
    d.settle()
    assert d.has(A)["disk"] == 6 and d.not_durable() == 0


def test_a_write_that_is_late_may_turn_up_yet() -> None:
    d = driver()
    d.store(A[:1])
    d.end_turn(A[:1])
    d.done(d.moves()[0].transfer_id, (0,), "late")
    d.end_turn(A[:1])
    (delete,) = d.moves()
    assert (delete.op, delete.keys) == ("delete", A[:1]), "and is not written before that is clear"
    d.done(delete.transfer_id)
    assert [move.op for move in d.settle()] == ["write"]


def test_a_slot_that_fails_its_check_on_the_way_to_disk_is_forgotten_in_the_host() -> None:
    d = driver()
    d.store(A[:3])
    d.end_turn(A[:3])
    d.done(d.moves()[0].transfer_id, (1,), "checksum")
    assert d.has(A)["host"] == 1


def test_a_full_disk_is_tried_once_more_with_more_room() -> None:
    d = driver(disk=10)
    on_disk(d, B[:6], "old")
    d.now = 1.0
    d.store(A[:2])
    d.end_turn(A[:2])
    d.done(d.moves("write")[0].transfer_id, (0, 1), "full")
    (delete,) = d.moves()
    assert delete.keys == (B[5], B[4]), "the least valuable, leaves first"
    d.done(delete.transfer_id)
    assert d.moves() == [] and d.tiers.wake_at is not None
    d.now = d.tiers.wake_at
    (again,) = d.moves("write")
    assert again.keys == A[:2]
    d.done(again.transfer_id, (0, 1), "full")
    d.now = 60.0
    assert d.settle() == [] and d.not_durable() == 0 and d.failed("disk") == {"full": 2}


def test_room_on_disk_is_made_by_value_and_used_once_the_records_are_gone() -> None:
    policy = Worth({"high": 2.0, "mid": 1.0, "low": 0.0})
    d = driver(disk=4, policy=policy)
    on_disk(d, A[:2], "high")
    on_disk(d, B[:2], "low")
    d.store(C[:3], "mid")
    d.end_turn(C[:3], "mid")
    (delete,) = d.moves()
    assert (delete.op, delete.keys) == ("delete", (B[1], B[0]))
    assert d.moves() == [], "the room is not given away before"
    d.done(delete.transfer_id)
    (write,) = d.moves("write")
    assert write.keys == C[:2]
    d.done(write.transfer_id)
    assert d.settle() == [] and d.not_durable() == 0
    assert d.failed("disk") == {"no_room": 1} and d.has(A)["disk"] == 2


def test_room_that_is_not_there_is_looked_for_again_after_a_while_or_when_something_ended() -> None:
    """Not in every plan: each look compares what is on the disk, and what is due at once keeps a driver awake."""
    policy = Counting({"high": 2.0, "mid": 1.0, "low": 0.0})
    d = driver(disk=4, policy=policy)
    on_disk(d, A[:2], "high")
    on_disk(d, B[:2], "low")
    d.store(C[:3], "mid")
    d.end_turn(C[:3], "mid")
    (delete,) = d.moves()
    assert d.moves() == [] and d.tiers.wake_at == RETRY_S, "all room that may be made is being made"
    before, d.now = policy.num_asked, 0.4 * RETRY_S
    assert d.moves() == [] and policy.num_asked == before and d.tiers.wake_at == RETRY_S
    d.now = RETRY_S
    assert d.moves() == [] and policy.num_asked > before and d.tiers.wake_at == 2 * RETRY_S
    d.done(delete.transfer_id)
    assert [move.keys for move in d.moves("write")] == [C[:2]], "at once"


@pytest.mark.parametrize("policy", [LRU(), Worth({"a": 1.0, "b": 1.0})])
def test_turns_that_do_not_fit_together_do_not_evict_each_other_for_ever(policy: object) -> None:
    d = driver(disk=3, policy=policy)
    for keys, stream in ((A[:4], "a"), (B[:4], "b")):
        d.store(keys, stream)
        d.end_turn(keys, stream)
    written = sum(len(move.keys) for move in d.settle() if move.op == "write")
    assert written <= 8 and d.not_durable() == 0 and d.tiers.wake_at is None
    assert d.has(A)["disk"] + d.has(B)["disk"] == 3


def test_a_record_that_is_being_deleted_is_written_again_only_afterwards() -> None:
    d = driver(disk=2)
    on_disk(d, A[:2])
    d.now = 1.0
    d.store(B[:2], "t")
    d.end_turn(B[:2], "t")
    (delete,) = d.moves("delete")
    d.now = 2.0
    d.end_turn(A[:2])
    assert d.moves("write") == []
    d.done(delete.transfer_id, tuple(range(2)), "io")
    assert d.failed("disk") == {"io": 2}
    d.settle()
    assert d.has(A)["disk"] + d.has(B)["disk"] == 2


def test_what_is_computed_while_the_disk_is_busy_finds_room_in_the_host_tier() -> None:
    """Three conversations of 40 blocks are written to a host tier of 128, which can let go of what is on disk."""
    d = driver(host=128, disk=400, block_bytes=370_000)
    talks = [[bytes([n, i]) for i in range(40)] for n in range(3)]
    for n, keys in enumerate(talks):
        d.store(keys, str(n))
    d.settle()
    for n, keys in enumerate(talks):
        d.end_turn(keys, str(n))
    assert sum(len(move.keys) for move in d.moves()) == 32
    assert d.store([bytes([9, i]) for i in range(20)], "new")[0] == tuple(range(20))
    assert d.failed("host") == {}


def test_moves_per_call_and_blocks_in_flight_are_bounded() -> None:
    d = driver(5000, 5000, block_bytes=1 << 20)
    keys = [i.to_bytes(2, "big") for i in range(2000)]
    d.store(keys)
    d.end_turn(keys)
    moves = d.moves()
    assert sum(len(move.keys) for move in moves) == 4 * 32
    assert d.moves() == [] and d.tiers.wake_at is None, "the next report is what it waits for"
    d.done(moves[0].transfer_id)
    assert d.tiers.wake_at is not None and sum(len(move.keys) for move in d.moves()) == 32


def test_no_disk() -> None:
    d = driver(disk=0)
    d.store(A)
    d.end_turn(A)
    d.tiers.wanted(A, 0.0)
    assert d.moves() == [] and d.tiers.wake_at is None
    assert [report.tier for report in d.tiers.report()] == ["host"] and d.has(A) == {"host": 8}


def test_a_restart_finds_what_was_written_in_its_order_of_use() -> None:
    d = driver(disk=6)
    records = [(key, key[:-1], "a") for key in A[:3]] + [(key, key[:-1], "b") for key in B[:3]]
    assert d.tiers.restore(records) == ()
    d.tiers.check()
    assert d.has(A) == {"host": 0, "disk": 3} and d.has(B)["disk"] == 3 and d.tiers.wake_at is None
    assert d.tiers._disk.leaf(A[2]).stream == "a"
    d.now = 1.0
    d.store(C[:2], "c")
    d.end_turn(C[:2], "c")
    assert d.moves("delete")[0].keys == (A[2], A[1]), "written first, so used first"


def test_records_without_a_parent_wait_for_it() -> None:
    d = driver()
    records = [(A[0], b"", "a"), (A[2], A[1], "a"), (A[3], A[2], "a"), (B[0], b"", "b"), (A[0], b"", "a")]
    assert d.tiers.restore(records) == (A[2], A[3])
    assert d.has(A)["disk"] == 1 and d.has(B)["disk"] == 1 and d.moves() == []
    on_disk(d, A[:2], "a")
    assert d.has(A)["disk"] == 4
    d.tiers.check()


def test_a_record_that_was_damaged_and_written_again_stands_behind_its_children() -> None:
    d = driver(disk=4)
    records = [(key, key[:-1], "a") for key in A[1:4]]
    assert d.tiers.restore([*records, (A[0], b"", "a")]) == () and d.has(A)["disk"] == 4
    d.tiers.check()


def test_records_without_a_parent_make_room_first() -> None:
    d = driver(disk=4)
    d.tiers.restore([(B[0], b"", "b"), (A[1], A[0], "a"), (A[2], A[1], "a")])
    on_disk(d, C[:3], "c")
    assert d.has(B)["disk"] == 1 and d.has(C)["disk"] == 3
    on_disk(d, A[:1], "a")
    assert d.has(A)["disk"] == 1


@pytest.mark.parametrize("how", ["load", "promotion"])
def test_a_damaged_block_that_many_share_costs_no_other(how: str) -> None:
    """The first block of three conversations: the others come back with it, as recently used as they were."""
    d = driver(disk=12)
    others = {stream: chain([1, n, n, n]) for n, stream in ((1, "a"), (2, "b"), (3, "c"))}
    for keys in others.values():
        d.now += 1.0
        on_disk(d, keys, "s")
    lose_host(d, 100)
    d.now = 20.0
    if how == "load":
        d.load(A[:4])
        d.done(d.last, (0, 1, 2, 3), "checksum")
    else:
        d.tiers.wanted(A[:4], d.now)
        d.done(d.moves("read")[0].transfer_id, (0,), "checksum")
        lose_host(d, 100)
    assert all(d.has(keys)["disk"] == 0 for keys in others.values())
    assert [(move.op, move.keys) for move in d.settle()] == [("delete", A[:1])]
    d.store(A[:2], "s")
    assert [(move.op, move.keys) for move in d.settle()] == [("write", A[:1])], "before its turn has ended"
    assert all(d.has(keys)["disk"] == 4 for keys in others.values())
    report = d.tiers.report()[1]
    assert report.recovered_blocks == 9 and report.forgotten_blocks == 10 and report.stored_blocks == 11
    assert d.not_durable() == 0
    d.store(C[:4], "t")
    d.end_turn(C[:4], "t")
    assert [move.keys for move in d.moves("delete")] == [tuple(reversed(others["b"][2:]))], "the least recently used"


def test_a_turn_that_waits_goes_on_behind_a_damaged_block() -> None:
    d = driver()
    on_disk(d, A[:3])
    d.store(A[:5])
    d.end_turn(A[:5])
    d.load(A[:2])
    lose = d.tiers._host.index
    assert len(lose) == 5
    d.done(d.last)
    d.tiers._orphans.damaged(A[1])
    d.tiers._admission.chain_broke()
    assert [(move.op, move.keys) for move in d.settle()] == [("delete", A[1:2]), ("write", A[1:2]), ("write", A[3:5])]
    assert d.not_durable() == 0 and d.failed("disk") == {}


def test_a_smaller_disk_keeps_what_was_written_last() -> None:
    d = driver(disk=4)
    records = [(key, key[:-1], "a") for key in A[:3]] + [(key, key[:-1], "b") for key in B[:3]]
    assert set(d.tiers.restore(records)) == {A[1], A[2]}
    assert d.has(A)["disk"] == 1 and d.has(B)["disk"] == 3
    d.tiers.check()


def test_a_record_that_cannot_be_used_costs_no_other_one() -> None:
    d = driver(disk=2)
    records = [(key, key[:-1], "a") for key in A[:2]] + [(B[1], B[0], "b")]
    assert d.tiers.restore(records) == (B[1],) and d.has(A)["disk"] == 2


def test_a_chain_longer_than_the_disk_keeps_its_beginning() -> None:
    d = driver(disk=3)
    assert d.tiers.restore([(key, key[:-1], "a") for key in A]) == A[3:]
    assert d.has(A)["disk"] == 3
