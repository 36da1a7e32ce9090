"""One pool under all ranks of a machine."""

from __future__ import annotations

from samovar.core.config import EngineConfig
from samovar.core.plan import TransferDone
from samovar.kv.settings import tiers_of
from samovar.kv.tiers import TieredConnector
from samovar.policy.agent import SUPERSEDED, AgentPolicy
from samovar.policy.lru import LRU
from samovar.policy.retention import Leaf
from samovar.sim.outcome import SimRun
from samovar.sim.tiers_shared import RankView, SharedOrder, shared_order
from tests.core.tiers import QuietPolicy
from tests.kv.tier_world import chain
from tests.sim.test_tiers import link_bytes
from tests.sim.tier_runs import BLOCK_BYTES, cached_share, conversations, run, tiers

A, B = chain([1, 1, 1]), chain([2, 2, 2])


class Valued(QuietPolicy):
    def __init__(self, **values: float) -> None:
        self.values = values

    def value(self, leaf: Leaf, now: float) -> float:
        return self.values[leaf.stream]


def views(order: object, host: int = 10) -> tuple[TieredConnector, list[RankView]]:
    connector = TieredConnector(host, 0, order, 10)  # type: ignore[arg-type]
    return connector, [RankView(connector, rank, 2) for rank in range(2)]


def test_what_one_rank_stored_the_other_finds_and_equal_ids_are_kept_apart() -> None:
    connector, (one, two) = views(shared_order([LRU(), LRU()], 10))
    _, first = one.store(1, A, b"", "s", 0.0)
    _, second = two.store(1, B, b"", "s", 0.0)
    assert not set(first.slots) & set(second.slots)
    two.transferred(TransferDone(1), 1.0)
    assert one.lookup(A, 1.0).num_blocks == 0 and one.lookup(B, 1.0).num_blocks == 3
    one.transferred(TransferDone(1), 1.0)
    assert two.lookup(A, 1.0).num_blocks == 3
    assert one.load(2, B, 1.0).slots == second.slots and two.load(2, A, 1.0).slots == first.slots
    one.transferred(TransferDone(2), 2.0)
    connector.check()
    two.transferred(TransferDone(2), 2.0)
    connector.check()
    assert one.report()[0].loaded_blocks == 6 and two.report() == ()


def test_a_stream_is_valued_by_the_policy_of_its_rank() -> None:
    order = SharedOrder([Valued(a=3.0, b=1.0), Valued(a=2.0)])
    leaf = Leaf(0, 0, 5.0, "0:b")
    assert [order.value(Leaf(0, 0, 5.0, name), 9.0) for name in ("0:a", "0:b", "1:a")] == [3.0, 1.0, 2.0]
    assert order.value(leaf, 9.0) == 1.0 and (order.name, order.sample) == ("quiet", 16)


def test_the_least_valued_goes_whoever_stored_it() -> None:
    _, (one, two) = views(SharedOrder([Valued(keep=5.0, more=4.0), Valued(drop=1.0)]), host=6)
    one.store(1, A, b"", "keep", 0.0)
    one.transferred(TransferDone(1), 1.0)
    two.store(1, B, b"", "drop", 2.0)
    two.transferred(TransferDone(1), 3.0)
    one.store(2, chain([3, 3, 3]), b"", "more", 4.0)
    assert one.blocks_of(A) == {"host": 3} and two.blocks_of(B) == {"host": 0}


def test_while_one_policy_leaves_it_to_recency_all_do() -> None:
    policies = [AgentPolicy(100), AgentPolicy(100)]
    order = shared_order(policies, 100)
    old, new = Leaf(0, 0, 1.0, "0:a", restore_s=100.0), Leaf(1, 0, 2.0, "1:b", restore_s=1.0)
    trusted = [policy.tier(50).trusted for policy in policies]
    by_recency = order.value(old, 3.0) < order.value(new, 3.0)
    assert by_recency != all(trusted)
    for policy in policies:
        for guard in policy._guards:
            guard.trusted = False
    assert order.value(old, 3.0) == 1.0 and order.value(new, 3.0) == 2.0
    assert order.value(Leaf(0, 0, 9.0, "0:a", superseded=True), 3.0) == SUPERSEDED


def checked(shared: bool, num_bytes: str, policy: object = None) -> SimRun:
    """Turns go from one rank to the other."""
    wanted = tiers_of(offloading_size=num_bytes)
    changes = {"ranks": 2, "lanes": 7, "balancer": "round-robin"}
    if policy is not None:
        changes["policy"] = policy
    return run(conversations(7, 6), tiers=tiers(wanted, shared=shared, ranks_per_machine=2), **changes)


def test_conversations_that_change_ranks_find_what_they_had_in_a_shared_pool() -> None:
    apart, together = checked(False, "1000MB"), checked(True, "2000MB")
    assert cached_share(together) > 0.99 > 0.9 > cached_share(apart)
    assert sum(stats.loaded_blocks for stats in together.stats) * BLOCK_BYTES == sum(
        num_bytes for name, num_bytes in link_bytes(together).items() if name.endswith("in")
    )
    assert cached_share(checked(True, "2000MB", lambda config: AgentPolicy(config.num_blocks))) > 0.99


def test_its_size_is_the_machines() -> None:
    wanted = tiers_of(offloading_size="1000MB")
    engine = EngineConfig(num_blocks=450, block_tokens=64)
    found = tiers(wanted, shared=True, ranks_per_machine=2)
    assert found.sizes(engine).host_blocks == tiers(wanted).sizes(engine).host_blocks
    assert not tiers(wanted, ranks_per_machine=2).sizes(engine).warnings
    assert found.build(engine, [LRU(), LRU()]).ranks[0].connector.report()[0].num_blocks > 900
    (warning,) = tiers(wanted, shared=True, ranks_per_machine=4).sizes(engine).warnings
    assert "cannot help" in warning
