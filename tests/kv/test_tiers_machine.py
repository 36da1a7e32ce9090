"""The tiers against a model that scans everything and a worker that moves bytes late, out of order and not always."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samovar.core.plan import Move
from samovar.kv.promotions import BROKEN
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from tests.kv.tier_world import Job, TierModel, World, chain

CONVERSATIONS = ([0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1], [0, 0, 0, 2, 2, 2], [1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2])
TOKENS = st.builds(lambda tokens, length: tokens[:length], st.sampled_from(CONVERSATIONS), st.integers(1, 6))
STREAMS = st.sampled_from(["a", "b", "c"])
Fault = tuple[int | None, str]
"""The first position that fails, modulo a transfer's length, and why."""
FAULTS = st.tuples(
    st.sampled_from([None, None, None, 0, 1, 2]), st.sampled_from([*sorted(BROKEN), "late", "full", "gone"])
)
ENOUGH = 400
"""More blocks than there are different chains and loads at once."""


@dataclass
class Fickle:
    """Values out of thin air, with ties and expirations, that change from one eviction to the next."""

    seed: int
    name: str = "fickle"
    sample: int = 16

    def value(self, leaf: Leaf, now: float) -> float:
        mixed = crc32(repr((leaf.last_used_s, leaf.stream, now, self.seed)).encode()) % 6
        return mixed if mixed else float("-inf")


class TiersMachine(RuleBasedStateMachine):
    @initialize(
        host=st.sampled_from([1, 2, 5, 9, ENOUGH]),
        disk=st.sampled_from([0, 1, 3, 8, ENOUGH]),
        policy=st.one_of(st.just(LRU()), st.builds(Fickle, st.integers(0, 99))),
        budget=st.sampled_from([None, None, 25.0]),
        faults=st.sampled_from([True, True, False]),
        before=st.lists(st.tuples(TOKENS, STREAMS), min_size=1, max_size=6),
    )
    def start(
        self,
        host: int,
        disk: int,
        policy: LRU | Fickle,
        budget: float | None,
        faults: bool,
        before: list[tuple[list[int], str]],
    ) -> None:
        self.tiers = TieredConnector(host, disk, policy, 10, Tuning(write_bytes_per_s=budget, write_burst_bytes=40))
        self.sizes = {"host": host, "disk": disk}
        self.faults = faults
        self.world = World()
        self.models = {"host": TierModel(), "disk": TierModel()}
        self.jobs: list[Job] = []
        self.kept: set[bytes] = set()
        self.now = 0.0
        self.last_id = 0
        self.disk_was_full = False
        """Once, and it is made room on though there would be enough."""
        for tokens, stream in before:
            self.live(tokens, stream)

    # -- what the tiers really have ----------------------------------------------------------------------------------

    def findable(self, tier: str) -> set[bytes]:
        index = getattr(self.tiers, f"_{tier}").index
        return {index.key_of(block) for block in index.indexed_blocks()}

    def evicted(self, tier: str) -> int:
        return next((r.evicted_blocks for r in self.tiers.report() if r.tier == tier), 0)

    def begin(self, tier: str, job: Job) -> None:
        job.stay = self.models[tier].begin(job.keys[len(job.keys) - job.fills :])
        self.jobs.append(job)

    def begin_move(self, move: Move) -> None:
        """Several are handed out at once, with evictions between them: which of their blocks stay is theirs to say."""
        job = Job.of(move)
        under_way = self.tiers._transfers._all[move.transfer_id]
        job.stay = {filling.key for filling in under_way.filling if filling.stays}
        coming = self.models["disk" if move.op == "write" else "host"].coming
        assert not coming & job.stay, "on its way twice"
        coming |= job.stay
        self.jobs.append(job)

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    # -- what a core does ----------------------------------------------------------------------------------------------

    @rule(tokens=TOKENS, first=st.integers(0, 5), stream=STREAMS)
    def store(self, tokens: list[int], first: int, stream: str) -> None:
        keys = chain(tokens)
        first = min(first, len(keys) - 1)
        offered, parent = keys[first:], keys[first - 1] if first else b""
        model = self.models["host"]
        missing = [i for i, key in enumerate(offered) if key not in model.have | model.coming]
        used = next(r.num_used_blocks for r in self.tiers.report() if r.tier == "host")
        before = self.evicted("host")
        transfer_id = self.next_id()
        wanted, place = self.tiers.store(transfer_id, offered, parent, stream, self.now)
        able = bool(missing) and model.expects(offered[missing[0]][:-1])
        assert list(wanted) == missing[: len(wanted)], "parents first, and only what is missing"
        if not able:
            assert not wanted
        elif used + len(missing) <= self.sizes["host"]:
            assert len(wanted) == len(missing) and self.evicted("host") == before, "there was room"
        assert len(place.slots) == len(place.generations) == len(wanted)
        self.sync()
        if wanted:
            chosen = tuple(offered[i] for i in wanted)
            self.begin("host", Job(transfer_id, "store", chosen, place.slots, place.generations, fills=len(chosen)))

    @rule(tokens=TOKENS, first=st.integers(0, 5), take=st.integers(1, 6))
    def load(self, tokens: list[int], first: int, take: int) -> None:
        keys = chain(tokens)[min(first, len(tokens) - 1) :]
        match = self.tiers.lookup(keys, self.now)
        in_host = self.leading("host", keys)
        assert [s.num_blocks for s in match.shares if s.tier == "host"] == [in_host] * bool(in_host)
        assert in_host <= match.num_blocks <= max(in_host, self.leading("disk", keys))
        if self.tiers._breaker.suspended:
            assert match.num_blocks == in_host
        elif self.sizes["host"] == ENOUGH:
            assert match.num_blocks == max(in_host, self.leading("disk", keys))
        if match.num_blocks == 0:
            return
        chosen = keys[: min(take, match.num_blocks)]
        transfer_id = self.next_id()
        place = self.tiers.load(transfer_id, chosen, self.now)
        self.sync()
        loaded = len(place.slots)
        assert min(in_host, len(chosen)) <= loaded <= len(chosen)
        assert loaded == 0 or loaded - place.from_disk == min(in_host, len(chosen))
        if loaded:
            job = Job(transfer_id, "load", chosen[:loaded], place.slots, place.generations, fills=place.from_disk)
            self.begin("host", job)

    def leading(self, tier: str, keys: tuple[bytes, ...]) -> int:
        have = self.models[tier].have
        return next((i for i, key in enumerate(keys) if key not in have), len(keys))

    @rule(tokens=TOKENS, stream=STREAMS)
    def turn_kept(self, tokens: list[int], stream: str) -> None:
        self.tiers.turn_ended(stream, chain(tokens), keep=True, now=self.now)
        self.hand_out()

    @rule(tokens=TOKENS, first=st.integers(0, 5), stream=STREAMS)
    def turn_dropped(self, tokens: list[int], first: int, stream: str) -> None:
        self.tiers.turn_ended(stream, chain(tokens)[first:], keep=False, now=self.now)

    @rule(tokens=TOKENS, stream=STREAMS, take=st.integers(1, 6))
    def turn(self, tokens: list[int], stream: str, take: int) -> None:
        """A turn that goes on while its transfers are under way."""
        self.load(tokens, 0, take)
        self.store(tokens, 0, stream)
        self.turn_kept(tokens, stream)

    @rule(tokens=TOKENS, stream=STREAMS, fault=FAULTS)
    def live(self, tokens: list[int], stream: str, fault: Fault = (None, "")) -> None:
        """A turn all of whose transfers end at once, but for what goes to disk."""
        self.store(tokens, 0, stream)
        self.turn_kept(tokens, stream)
        for _ in range(2):
            for job in self.jobs[:]:
                if not job.performed:
                    self.perform_one(job, fault)
                self.report_one(job)
            self.hand_out()

    @rule(count=st.integers(1, 6))
    def shrink_host(self, count: int) -> None:
        """What other conversations would do to the host tier: loads come from disk then."""
        index = self.tiers._host.index
        if self.sizes["host"] < ENOUGH:
            index.evict(min(count, index.num_unused), self.now, None)
            self.sync()

    @rule(tokens=TOKENS, first=st.integers(0, 5))
    def want(self, tokens: list[int], first: int) -> None:
        self.tiers.wanted(chain(tokens)[min(first, len(tokens) - 1) :], self.now)
        self.hand_out()

    @rule()
    def hand_out(self) -> None:
        moves = self.tiers.moves(self.now)
        self.sync()
        assert len({move.transfer_id for move in moves} | {job.id for job in self.jobs}) == len(moves) + len(self.jobs)
        for move in moves:
            self.begin_move(move)
        written = [key for job in self.jobs if job.kind == "write" for key in job.keys]
        assert len(written) == len(set(written)), "written twice at once"

    @rule(tokens=TOKENS, first=st.integers(0, 5))
    def distrust(self, tokens: list[int], first: int) -> None:
        if not self.faults:
            return
        keys = chain(tokens)[min(first, len(tokens) - 1) :]
        self.tiers.distrust(keys, self.now)
        for model in self.models.values():
            model.distrust(keys)
        for job in self.jobs:
            job.doomed |= job.stay.intersection(keys)
        self.sync()

    @rule(seconds=st.sampled_from([0.01, 0.6, 5.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # -- what a worker does ------------------------------------------------------------------------------------------

    @rule(jobs=st.lists(st.tuples(st.integers(0, 20), FAULTS, st.booleans()), min_size=1, max_size=8))
    def work(self, jobs: list[tuple[int, Fault, bool]]) -> None:
        """Some are reported at once, others later."""
        for at, fault, at_once in jobs:
            waiting = [job for job in self.jobs if not job.performed]
            if waiting:
                job = waiting[at % len(waiting)]
                self.perform_one(job, fault)
                if at_once:
                    self.report_one(job)

    def perform_one(self, job: Job, fault: Fault = (None, "")) -> None:
        """What a failure made the disk delete is missing for whoever was about to read it too."""
        at, reason = fault
        failed: tuple[int, ...] = ()
        if self.faults and at is not None and job.kind != "delete":
            at %= len(job.keys)
            failed = tuple(range(at, len(job.keys))) if job.kind == "load" else (at,)
        if self.faults and job.kind in ("load", "read"):
            first = len(job.keys) - job.fills
            gone = {i for i in range(first, len(job.keys)) if job.keys[i] not in self.world.disk}
            bad = sorted(gone.union(failed))
            reason = "missing" if bad and bad[0] in gone else reason
            failed = tuple(range(bad[0], len(job.keys)) if bad and job.kind == "load" else bad)
        if failed and job.kind == "write" and reason == "gone":
            self.lose_all(job)
        else:
            self.world.perform(job, failed, reason)

    def lose_all(self, job: Job) -> None:
        """Writes are done and reported one after the other."""
        for before in [before for before in self.jobs if before.kind == "write" and before.performed]:
            self.report_one(before)
        self.world.perform(job, tuple(range(len(job.keys))), "gone")
        self.world.disk.clear()
        self.report_one(job)

    @precondition(lambda self: any(job.performed for job in self.jobs))
    @rule(at=st.integers(0, 20))
    def report(self, at: int) -> None:
        done = [job for job in self.jobs if job.performed]
        self.report_one(done[at % len(done)])

    def report_one(self, job: Job) -> None:
        if job not in self.jobs:
            return
        self.jobs.remove(job)
        self.disk_was_full |= job.kind == "write" and job.reason == "full"
        self.tiers.transferred(job.done(), self.now)
        host, disk = self.models["host"], self.models["disk"]
        bad = {job.keys[i] for i in job.failed}
        if job.failed and job.reason in BROKEN:
            first = job.keys[job.failed[0]]
            if job.kind == "load":
                if job.failed[0] < len(job.keys) - job.fills:
                    host.forget(first)
                else:
                    disk.damaged(first)
            elif job.kind == "read":
                disk.damaged(first)
            elif job.kind == "write" and job.reason in ("generation", "checksum"):
                host.forget(first)
        if job.failed and job.kind == "write" and job.reason == "gone":
            disk.have.clear()
            disk.orphans.clear()
        (disk if job.kind == "write" else host).end(job.stay, bad | job.doomed)
        self.sync()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """What the models have and the tiers do not was evicted; nothing else may be missing, and nothing pinned.
        Orphans may go at any time."""
        orphans = set(self.tiers._orphans._all)
        assert orphans <= self.models["disk"].orphans, "an orphan that never was one"
        if self.sizes["disk"] == ENOUGH:
            assert orphans == self.models["disk"].orphans, "given up though everything fits"
        self.models["disk"].orphans = orphans
        for tier, model in self.models.items():
            there = self.findable(tier)
            assert there <= model.have, "findable and never arrived"
            gone = model.have - there
            fits = self.sizes[tier] == ENOUGH and not (tier == "disk" and self.disk_was_full)
            assert not (fits and gone), "evicted though everything fits"
            assert not gone & self.pinned(tier), "evicted under a transfer"
            model.have = there

    def pinned(self, tier: str) -> set[bytes]:
        """Of a load what it reads, where it reads it; of a move what it copies."""
        found: set[bytes] = set()
        for job in self.jobs:
            num_held = len(job.keys) - job.fills
            if tier == "host":
                held = job.keys if job.kind == "write" else job.keys[:num_held] if job.kind == "load" else ()
            else:
                held = job.keys if job.kind == "read" else job.keys[num_held:] if job.kind == "load" else ()
            found.update(held)
        return found & self.models[tier].have

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "tiers"):
            return
        self.sync()
        self.tiers.check()
        for tier, model in self.models.items():
            assert all(len(key) == 1 or key[:-1] in model.have for key in model.have), "findable without its parent"
            assert model.coming == set(getattr(self.tiers, f"_{tier}")._coming)
        for report in self.tiers.report():
            assert 0 <= report.num_used_blocks <= self.sizes[report.tier]
            assert report.num_used_blocks >= len(self.models[report.tier].have)
        if not self.faults:
            under_way = [key for job in self.jobs if job.kind == "write" and not job.performed for key in job.keys]
            assert len(self.world.disk) + len(under_way) <= self.sizes["disk"], "more records than there is room for"

    def teardown(self) -> None:
        """Everything is reported: no pin is left, and the disk has exactly what is findable on it."""
        if not hasattr(self, "tiers"):
            return
        for _ in range(2000):
            self.hand_out()
            if not self.jobs and self.tiers.wake_at is None:
                break
            for job in [job for job in self.jobs if not job.performed]:
                self.perform_one(job)
            while self.jobs:
                self.report_one(self.jobs[0])
            self.now = max(self.now, self.tiers.wake_at or 0.0)
        self.agrees()
        assert not self.jobs and self.tiers.wake_at is None, "never comes to rest"
        for tier in (self.tiers._host, self.tiers._disk):
            waiting = len(self.tiers._orphans) if tier is self.tiers._disk else 0
            assert sum(tier.pool.refs) == waiting, "a pin is left"
        for report in self.tiers.report():
            came = report.stored_blocks + report.promoted_blocks + report.recovered_blocks
            left = report.evicted_blocks + report.forgotten_blocks
            assert came - left == len(self.models[report.tier].have)
        assert self.world.disk == self.findable("disk") | self.models["disk"].orphans, "records that nothing leads to"
        assert sum(report.not_yet_durable_blocks for report in self.tiers.report()) == 0


TestTiers = TiersMachine.TestCase
TestTiers.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
