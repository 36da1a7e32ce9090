"""Rounds taken at once beside tiers: as long as nothing comes from them and none of their times has come, they leave
core and tiers as the same rounds one by one."""

from __future__ import annotations

from collections import deque
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.core.config import EngineConfig
from samovar.core.plan import Gate, TransferDone
from samovar.kv.tier import Tier
from samovar.kv.tiers import TieredConnector, Tuning
from samovar.policy.agent import AgentPolicy
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from tests.core.test_steady import BT, Twin, state_of

BLOCK_BYTES = 1000
DELAYS_S = (0.25, 1.0, 1.5, 4.0, 7.75)
LATE_S = 40.0
"""Beyond every deadline: loads are given up before they end."""


class TieredTwin(Twin):
    """Its transfers end by themselves, each after a time that follows from its number."""

    def __init__(
        self,
        config: EngineConfig,
        counts: dict[int, list[int]],
        policy: RetentionPolicy,
        tiers: TieredConnector,
        late: int,
    ) -> None:
        super().__init__(config, counts, policy, tiers)
        self.tiers = tiers
        self.late = late
        self.under_way: deque[tuple[float, int]] = deque()

    def plan(self, gate: Gate | None) -> bool:
        planned = super().plan(gate)
        if planned:
            plan = self.plans[-1]
            for each in (*plan.loads, *plan.stores, *plan.moves, *plan.compares):
                number = each.transfer_id
                late = number > 0 and number % self.late == 0 and bool(plan.loads)
                self.under_way.append((self.now + (LATE_S if late else DELAYS_S[number % len(DELAYS_S)]), number))
            self.under_way = deque(sorted(self.under_way))
        while self.plans and not self.plans[0].chunks:
            self.apply()
        return planned

    def arrive(self, now: float) -> None:
        """Transfers that end up to then, each at its moment; what can be planned then is."""
        while self.under_way and self.under_way[0][0] <= now:
            self.now, number = self.under_way.popleft()
            self.engine.transferred([TransferDone(number, (), "", 0.25)], self.now)
        self.now = now

    def round(self, gate: Gate | None) -> None:
        begins_s = self.now
        self.arrive(begins_s + 0.5)
        self.now = begins_s + 1.0
        self.apply()
        while self.plans and not self.plans[0].chunks:
            self.apply()
        self.arrive(self.now)
        self.plan(gate)

    @property
    def calm_s(self) -> float:
        """When the first thing happens that is no round."""
        ends_s = self.under_way[0][0] if self.under_way else float("inf")
        return min(ends_s, self.engine.quiet_until)


def state_of_tier(tier: Tier) -> object:
    index = tier.index
    return (
        index._blocks, index._stamps, index._last_used, index._streams, bytes(index._superseded), tier.pool.refs,
        tier._generations, [filling.key for filling in tier._filling.values()], dict(tier.failed), tier.stored_blocks,
    )  # fmt: skip


def state_of_tiers(twin: TieredTwin) -> object:
    tiers, admission, board = twin.tiers, twin.tiers._admission, twin.engine._engine._board
    return (
        state_of_tier(tiers._host), state_of_tier(tiers._disk), tiers.report(), tiers.wake_at,
        [(turn.name, turn.keys, turn.num_durable) for turn in admission._turns.values()],
        admission._budget.left_bytes(twin.now), sorted(board.transfers), board.loading_keys, board.planned_s,
        board.last_applied_s, [fence.holding.blocks for fence in board.kv._fences],
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn):
    drafts = draw(st.sampled_from([0, 0, 2]))
    config = EngineConfig(
        num_blocks=draw(st.sampled_from([45, 60, 90])), block_tokens=BT, max_num_seqs=5,
        depth=1 if drafts else draw(st.integers(1, 2)), max_num_batched_tokens=draw(st.sampled_from([40, 80])),
        max_model_len=240, num_speculative_tokens=drafts, prefill_schedule_interval=draw(st.sampled_from([1, 9])),
        kv_verify=draw(st.sampled_from([0, 0, 2])),
    )  # fmt: skip
    prompts = st.sampled_from([[3] * 9, [5] * 100, [5] * 50 + [6] * 50, [7] * 110, [8] * 120])
    requests = draw(st.lists(st.tuples(prompts, st.integers(1, 60)), min_size=2, max_size=8))
    requests = [([3] * 9, draw(st.integers(60, 140))), *requests]
    counts = {n: draw(st.lists(st.integers(1, 1 + drafts), min_size=1, max_size=5)) for n in range(len(requests))}
    sizes = draw(st.sampled_from([8, 40, 300])), draw(st.sampled_from([0, 20, 300]))
    budget = draw(st.sampled_from([None, 300.0, 5000.0]))
    return config, requests, counts, sizes, budget


@settings(max_examples=60, deadline=None)
@given(
    case=cases(), seed=st.integers(0, 10**6), lone=st.booleans(), agent=st.booleans(), late=st.sampled_from([3, 1000])
)
def test_rounds_at_once_are_rounds_one_by_one(case, seed: int, lone: bool, agent: bool, late: int) -> None:
    """Conversations come back to a device that could not keep them, while others decode."""
    config, requests, counts, (host, disk), budget = case

    def twin() -> TieredTwin:
        policy = AgentPolicy(config.num_blocks) if agent else LRU()
        tuning = Tuning(1e6, 1e5, budget, 2000.0 if budget else None)
        tiers = TieredConnector(host, disk, policy, BLOCK_BYTES, tuning, lambda: 0.2)
        return TieredTwin(config, counts, policy, tiers, late)

    twins = stepping, leaping = [twin() for _ in range(2)]
    rng = random.Random(seed)
    comes = [rng.randrange(150) if number else 0 for number in range(len(requests))]

    def gate(closed: float = 0.85) -> Gate | None:
        return None if lone else Gate(1, rng.random() > closed)

    for at in range(1500):
        for number, request in enumerate(requests):
            for one in twins if comes[number] == at else ():
                one.submit(number, *request)
        now = gate()
        for one in twins:
            one.fill(now)
        if not leaping.plans:
            for one in twins:
                one.arrive(one.now + 1.0)
            continue
        closed = rng.randrange(10)
        rounds = leaping.engine.steady_rounds(None if lone else closed)
        while rounds and leaping.now + rounds >= leaping.calm_s:
            rounds -= 1
        if not rounds:
            for one in twins:
                one.round(now)
            continue
        rounds = rng.randint(1, rounds)
        for done in range(rounds):
            stepping.round(gate(1.0 if done < closed else 0.5))
        leaping.leap(rounds)
        assert list(stepping.plans) == list(leaping.plans)
        assert state_of(stepping.engine) == state_of(leaping.engine)
        assert state_of_tiers(stepping) == state_of_tiers(leaping)
        leaping.engine.check()
    assert not leaping.engine._engine._board.requests, "the requests do not end"
    assert state_of(stepping.engine) == state_of(leaping.engine)
    assert state_of_tiers(stepping) == state_of_tiers(leaping)
