"""The real connector over a virtual mover: whatever is asked of them, every transfer is reported once, nothing fails
(slots are pinned, so a failure would be a slot that changed hands), and no link carries more than it can."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from samovar.base.ids import BlockKey, TransferId
from samovar.core.plan import Load, StepPlan, Store, TransferDone
from samovar.core.ports import Connector
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.lru import LRU
from samovar.sim.links_events import LinkEvents
from samovar.sim.mover import VirtualMover, Ways
from samovar.sim.mover_contents import Contents
from samovar.sim.tiers_shared import RankView, shared_order
from samovar.spec.link import Link
from tests.kv.tier_world import chain

CONVERSATIONS = ([0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1], [0, 0, 0, 2, 2, 2], [1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2])
TOKENS = st.builds(lambda tokens, length: chain(tokens[:length]), st.sampled_from(CONVERSATIONS), st.integers(1, 6))
BLOCK_BYTES = 3 << 20


class MoverMachine(RuleBasedStateMachine):
    @initialize(
        host=st.sampled_from([2, 5, 400]),
        disk=st.sampled_from([0, 3, 400]),
        host_speed=st.sampled_from([1e6, 1e9]),
        disk_speed=st.sampled_from([5e5, 1e8]),
        latency=st.sampled_from([0.0, 0.01]),
        ranks=st.sampled_from([1, 2]),
    )
    def begin(self, host: int, disk: int, host_speed: float, disk_speed: float, latency: float, ranks: int) -> None:
        """Two ranks share everything but their host links; one stands for itself."""
        self.events = LinkEvents()
        ssd = self.events.add(Link("ssd", "test", disk_speed, disk_speed / 2, latency), "ssd")
        link = Link("host", "test", host_speed, host_speed / 2, latency)
        order = shared_order([LRU()] * ranks, host) if ranks > 1 else LRU()
        self.whole: Connector = TieredConnector(host, disk, order, BLOCK_BYTES, Tuning())
        self.connectors = [RankView(self.whole, rank, ranks) for rank in range(ranks)] if ranks > 1 else [self.whole]
        contents = Contents()
        self.movers = [
            VirtualMover(self.events, Ways(self.events.add(link, "host"), BLOCK_BYTES, ssd, BLOCK_BYTES), contents)
            for _ in range(ranks)
        ]
        self.at = 0
        """Whose turn it is."""
        self.now = 0.0
        self.last = [0] * ranks
        self.open: dict[tuple[int, TransferId], tuple[float, int]] = {}
        """By rank and id."""
        self.slow = host_speed < 1e7 or disk_speed < 1e7
        """Deadlines may pass."""

    @property
    def connector(self) -> Connector:
        return self.connectors[self.at]

    def next_id(self) -> TransferId:
        self.last[self.at] += 1
        return TransferId(self.last[self.at])

    @rule()
    def other_rank(self) -> None:
        self.at = (self.at + 1) % len(self.movers)

    @rule(keys=TOKENS)
    def store(self, keys: tuple[BlockKey, ...]) -> None:
        number = self.next_id()
        wanted, place = self.connector.store(number, keys, b"", "s", self.now)
        if wanted:
            chosen = tuple(keys[i] for i in wanted)
            store = Store(number, 0, chosen, tuple(wanted), place.slots, place.generations)
            self._start(StepPlan(0, stores=(store,)))

    @rule(keys=TOKENS)
    def load(self, keys: tuple[BlockKey, ...]) -> None:
        found = self.connector.lookup(keys, self.now).num_blocks
        if not found:
            return
        number = self.next_id()
        place = self.connector.load(number, keys[:found], self.now)
        if place.slots:
            count = len(place.slots)
            blocks = tuple(range(count))
            load = Load(number, 0, keys[:count], blocks, place.slots, place.generations, place.from_disk)
            self._start(StepPlan(0, loads=(load,)))

    @rule(keys=TOKENS, keep=st.booleans())
    def turn_ended(self, keys: tuple[BlockKey, ...], keep: bool) -> None:
        self.connector.turn_ended("s", keys, keep=keep, now=self.now)

    @rule(keys=TOKENS)
    def wanted(self, keys: tuple[BlockKey, ...]) -> None:
        self.connector.wanted(keys, self.now)

    @rule()
    def moves(self) -> None:
        if moves := tuple(self.connector.moves(self.now)):
            self._start(StepPlan(0, moves=moves))

    @rule()
    def wait_for_the_next(self) -> None:
        if (at := self._next_end()) is not None:
            self._until(at)

    @rule(seconds=st.sampled_from([0.001, 0.1, 3.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self._until(self.now + seconds)

    def _next_end(self) -> float | None:
        return min((at for mover in self.movers if (at := mover.next_end()) is not None), default=None)

    def _start(self, plan: StepPlan) -> None:
        for transfer in (*plan.loads, *plan.stores, *plan.moves):
            num_bytes = 0 if getattr(transfer, "op", "") == "delete" else len(transfer.keys) * BLOCK_BYTES
            self.open[self.at, transfer.transfer_id] = (self.now, num_bytes)
        self.movers[self.at].start(plan, self.now)

    def _until(self, now: float) -> None:
        next_end = self._next_end()
        self.now = now
        for rank, mover in enumerate(self.movers):
            done = mover.ended(now)
            assert not done or (next_end is not None and next_end <= now), "ended before it was said to"
            for report in done:
                self._reported(rank, report)

    def _reported(self, rank: int, report: TransferDone) -> None:
        began_s, num_bytes = self.open.pop((rank, report.transfer_id))
        assert not report.failed or (self.slow and report.reason in ("late", "missing")), report
        assert report.seconds <= self.now - began_s + 1e-9
        if not report.failed:
            fastest = max(channel.bytes_per_s for channel in self.events.channels)
            assert report.seconds >= num_bytes / fastest * (1 - 1e-9), "faster than its link"
        self.connectors[rank].transferred(report, self.now)

    @invariant()
    def it_holds(self) -> None:
        if hasattr(self, "movers"):
            for mover in self.movers:
                mover.check()
            self.events.check()
            self.whole.check()
            assert (self._next_end() is None) == (not self.open)

    def teardown(self) -> None:
        if not hasattr(self, "movers"):
            return
        for _ in range(1000):
            if (at := self._next_end()) is None:
                break
            self._until(at)
        assert not self.open, "never reported"
        assert all(channel.num_flows == 0 for channel in self.events.channels)


TestMoverMachine = MoverMachine.TestCase
TestMoverMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
