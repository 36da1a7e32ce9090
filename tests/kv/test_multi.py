"""Several connectors as one."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
import pytest

from samovar.core.plan import TransferDone
from samovar.core.ports import Connector, Reserved, TierMatch, TierShare
from samovar.kv.multi import MultiConnector, Part
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.lru import LRU
from tests.kv.tier_world import Job, World, chain

A = chain([1, 1, 1, 1, 1, 1])
B = chain([2, 2, 2, 2])


def two(first: int = 4, second: int = 8, disk: int = 8) -> tuple[MultiConnector, TieredConnector, TieredConnector]:
    small, large = TieredConnector(first, 0, LRU(), 10), TieredConnector(second, disk, LRU(), 10)
    return MultiConnector([Part("small", small, first), Part("large", large, second)]), small, large


def store(multi: MultiConnector, transfer_id: int, keys: tuple[bytes, ...]) -> Reserved:
    _, place = multi.store(transfer_id, keys, b"", "s", 0.0)
    multi.transferred(TransferDone(transfer_id), 0.0)
    return place


def test_it_is_a_connector() -> None:
    connector: Connector = two()[0]
    assert connector.wake_at is None and connector.lookup(A, 0.0) == TierMatch()


def test_a_store_goes_to_all_in_slots_of_their_own() -> None:
    multi, small, large = two()
    wanted, place = multi.store(1, A[:2], b"", "s", 0.0)
    assert wanted == (0, 1, 0, 1) and place.slots == (0, 1, 4, 5)
    multi.transferred(TransferDone(1, (1,), "io"), 0.0)
    assert small.blocks_of(A)["host"] == 1 and large.blocks_of(A)["host"] == 2
    assert small.report()[0].failed == {"io": 1} and large.report()[0].failed == {}
    multi.check()


def test_the_longest_match_wins_not_the_first() -> None:
    multi, small, large = two()
    store(multi, 1, A[:6])
    assert small.blocks_of(A)["host"] == 4 and large.blocks_of(A)["host"] == 6
    (share,) = multi.lookup(A, 0.0).shares
    assert (share.tier, share.num_blocks) == ("large:host", 6)
    place = multi.load(2, A, 0.0)
    assert place.slots == (4, 5, 6, 7, 8, 9)
    multi.transferred(TransferDone(2, (5,), "checksum"), 0.0)
    assert large.blocks_of(A)["host"] == 5
    multi.check()


def test_among_equal_matches_the_soonest_wins() -> None:
    slow = TieredConnector(4, 0, LRU(), 10, Tuning(host_bytes_per_s=1.0))
    fast = TieredConnector(4, 0, LRU(), 10, Tuning(host_bytes_per_s=100.0))
    multi = MultiConnector([Part("slow", slow, 4), Part("fast", fast, 4)])
    store(multi, 1, A[:2])
    assert multi.lookup(A, 0.0).shares[0].tier == "fast:host"
    assert multi.restore_s(A[0]) == fast.restore_s(A[0]) and multi.restore_s(B[0]) is None
    assert min(multi.load(2, A[:2], 0.0).slots) >= 4


def test_moves_have_ids_and_slots_of_their_own() -> None:
    parts = [TieredConnector(4, 4, LRU(), 10) for _ in range(3)]
    multi = MultiConnector([Part(str(i), part, 4) for i, part in enumerate(parts)])
    store(multi, 1, A[:2])
    multi.turn_ended("s", A[:2], keep=True, now=3.0)
    assert multi.wake_at == 3.0
    moves = multi.moves(3.0)
    assert len({move.transfer_id for move in moves}) == 3 and all(move.transfer_id < 0 for move in moves)
    assert sorted(slot for move in moves for slot in move.slots) == [0, 1, 4, 5, 8, 9]
    multi.transferred(TransferDone(moves[1].transfer_id), 3.0)
    assert [part.blocks_of(A)["disk"] for part in parts] == [0, 2, 0]
    assert multi.blocks_of(A) == {f"{i}:host": 2 for i in range(3)} | {"0:disk": 0, "1:disk": 2, "2:disk": 0}


def test_names_are_kept_where_they_are_clear() -> None:
    multi, _, _ = two()
    assert [report.tier for report in multi.report()] == ["small:host", "large:host", "disk"]
    assert set(multi.blocks_of(A)) == {"small:host", "large:host", "disk"}


def test_wanted_chains_come_up_where_there_is_a_disk() -> None:
    multi, _, large = two()
    large.restore([(key, key[:-1], "s") for key in A])
    multi.wanted(A, 1.0)
    (move,) = multi.moves(1.0)
    assert move.op == "read" and min(move.slots) >= 4
    multi.transferred(TransferDone(move.transfer_id), 1.0)
    assert large.blocks_of(A) == {"host": 6, "disk": 6}


class Asking(TieredConnector):
    """Does not know yet, up to a deadline."""

    def lookup(self, keys: object, now: float) -> TierMatch:
        return TierMatch((), True, 0.25)


def test_one_that_does_not_know_yet_is_waited_for_unless_all_is_there() -> None:
    known = TieredConnector(8, 0, LRU(), 10)
    multi = MultiConnector([Part("known", known, 8), Part("asking", Asking(8, 0, LRU(), 10), 8)])
    store(multi, 1, A[:3])
    match = multi.lookup(A, 0.0)
    assert match.asked and match.deadline_s == 0.25 and match.num_blocks == 3
    assert not multi.lookup(A[:3], 0.0).asked


def test_reports_of_nobodys_transfers_are_ignored() -> None:
    multi, _, _ = two()
    multi.transferred(TransferDone(5), 0.0)
    multi.transferred(TransferDone(-7), 0.0)
    assert multi.load(1, A, 0.0) == Reserved()
    assert TierShare("x", 1, 0.0).num_blocks == 1


class MultiMachine(RuleBasedStateMachine):
    """Two parts and a worker with one memory: slots never collide, and all pins go."""

    @initialize(first=st.integers(1, 6), second=st.integers(1, 6), disk=st.integers(0, 6))
    def start(self, first: int, second: int, disk: int) -> None:
        self.multi, *self.parts = two(first, second, disk)
        self.world = World()
        self.jobs: list[Job] = []
        self.last_id = 0
        self.now = 0.0

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def store(self, tokens: list[int]) -> None:
        keys = chain(tokens)
        self.last_id += 1
        wanted, place = self.multi.store(self.last_id, keys, b"", "s", self.now)
        if wanted:
            chosen = tuple(keys[i] for i in wanted)
            self.jobs.append(Job(self.last_id, "store", chosen, place.slots, place.generations, fills=len(chosen)))
        self.multi.turn_ended("s", keys, keep=True, now=self.now)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def load(self, tokens: list[int]) -> None:
        keys = chain(tokens)
        self.last_id += 1
        longest = max(part.lookup(keys, self.now).num_blocks for part in self.parts)
        assert self.multi.lookup(keys, self.now).num_blocks == longest
        place = self.multi.load(self.last_id, keys, self.now)
        if place.slots:
            loaded = keys[: len(place.slots)]
            self.jobs.append(Job(self.last_id, "load", loaded, place.slots, place.generations, fills=place.from_disk))

    @rule()
    def hand_out(self) -> None:
        self.jobs += [Job.of(move) for move in self.multi.moves(self.now)]

    @rule(at=st.integers(0, 9), fail=st.integers(0, 9))
    def report(self, at: int, fail: int) -> None:
        self.now += 1.0
        if self.jobs:
            job = self.jobs.pop(at % len(self.jobs))
            failed = (fail,) if fail < len(job.keys) and job.kind == "store" else ()
            self.world.perform(job, failed, "io")
            self.multi.transferred(job.done(), self.now)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "multi"):
            self.multi.check()

    def teardown(self) -> None:
        if hasattr(self, "multi"):
            while self.jobs or self.multi.wake_at is not None:
                self.report(0, 9)
                self.hand_out()
            self.multi.check()
            assert not any(any(tier.pool.refs) for part in self.parts for tier in (part._host, part._disk))


TestMulti = MultiMachine.TestCase
TestMulti.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_check_sees_a_transfer_with_gaps() -> None:
    multi, _, _ = two()
    multi.store(1, A[:2], b"", "s", 0.0)
    multi._routes[1] = multi._routes[1][1:]
    with pytest.raises(AssertionError, match="gaps"):
        multi.check()
