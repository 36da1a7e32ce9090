"""Whole runs over the real connectors, and how their sizes follow from a model and its layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
import subprocess
import sys

import pytest

from samovar.base.errors import ConfigError
from samovar.base.ids import TransferId
from samovar.core.calls import Advance, Call
from samovar.core.config import EngineConfig
from samovar.core.plan import TransferDone
from samovar.core.ports import Connector
from samovar.core.replay import Recorder
from samovar.kv.settings import tiers_of
from samovar.policy.agent import AgentPolicy
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from samovar.sim.cost.layout import Layout
from samovar.sim.outcome import SimRun
from samovar.sim.run import Simulation
from samovar.sim.tiers import Tiers, TierSettings, compute_block_s, tiers_on
from samovar.spec.catalog import load_device, load_model
from samovar.spec.link import Link
from tests.kv.tier_world import chain
from tests.sim.tier_runs import (
    BLOCK_BYTES,
    HOST,
    SSD,
    STEPS,
    cached_share,
    conversations,
    run,
    tiers,
)
from tests.sim.tier_runs import settings as run_settings

TURNS = 6


@dataclass
class Watched:
    """Keeps what was built, to check it when the run is over."""

    settings: TierSettings
    built: list[Tiers] = field(default_factory=list)

    def build(self, engine: EngineConfig, policies: Sequence[RetentionPolicy]) -> Tiers:
        self.built.append(self.settings.build(engine, policies))
        return self.built[-1]


def checked_run(settings: TierSettings, lanes: int = 8, **changes: object) -> tuple[SimRun, Tiers]:
    watched = Watched(settings)
    found = run(conversations(lanes, TURNS), lanes=lanes, tiers=watched, **changes)
    watched.built[0].check()
    return found, watched.built[0]


def link_bytes(found: SimRun) -> dict[str, float]:
    return {link.name: link.bytes for link in found.links}


def test_with_a_host_tier_what_the_device_cannot_hold_is_found_again() -> None:
    without = run(conversations(8, TURNS))
    found, _ = checked_run(tiers())
    assert cached_share(without) < 0.2
    assert cached_share(found) > 0.99
    assert found.simulated_s < 0.5 * without.simulated_s
    assert found.stats[0].cached_tokens_by_tier["host"] > 0 and without.links == ()


def test_loads_take_bytes_over_bandwidth() -> None:
    found, _ = checked_run(tiers())
    stats = found.stats[0]
    moved = link_bytes(found)
    assert stats.loaded_blocks > 1000 and stats.failed_load_blocks == 0
    assert moved["host link of rank 0 in"] == pytest.approx(stats.loaded_blocks * BLOCK_BYTES)
    assert moved["host link of rank 0 out"] == pytest.approx(stats.stored_blocks * BLOCK_BYTES)
    for link in found.links:
        assert link.bytes <= link.bandwidth * link.busy_s * (1 + 1e-9)
    # Turns that came back waited for at least a hundred blocks each.
    waits = [timing.load_s for timing in found.timings if timing.load_s > 0.0]
    assert len(waits) == 8 * (TURNS - 1)
    assert min(waits) >= 100 * BLOCK_BYTES / HOST.in_bytes_per_s


def test_a_faster_link_shortens_the_wait_in_proportion() -> None:
    def longest(bandwidth: float) -> float:
        host = Link("host", "test", bandwidth, bandwidth, 0.0)
        found, _ = checked_run(tiers(host=host), lanes=2, num_blocks=130)
        return max(timing.load_s for timing in found.timings)

    # The device holds one conversation, 126 of its 130 blocks in the end. So 4 stay of the 120 blocks that the last
    # turn of the other one wants back.
    assert longest(0.5e9) == pytest.approx(116 * BLOCK_BYTES / 0.5e9)
    assert longest(2e9) == pytest.approx(116 * BLOCK_BYTES / 2e9)


def test_what_memory_cannot_hold_comes_from_disk_through_it() -> None:
    wanted = tiers_of(offloading_size="500MB", disk_path="/nowhere", disk_size="4000MB")
    found, built = checked_run(tiers(wanted))
    stats, moved = found.stats[0], link_bytes(found)
    assert built.sizes.host_blocks[0] == pytest.approx(500, rel=0.01) and 3000 < built.sizes.disk_blocks < 4000
    assert stats.cached_tokens_by_tier["disk"] > 0
    assert moved["ssd of machine 0 read"] > 0 and moved["ssd of machine 0 write"] > 0
    assert moved["ssd of machine 0 read"] <= moved["host link of rank 0 in"]
    assert cached_share(found) > cached_share(checked_run(tiers(tiers_of(offloading_size="500MB")))[0])


def test_a_write_budget_bounds_what_reaches_the_disk() -> None:
    budget = tiers_of(disk_path="/nowhere", disk_size="4000MB", disk_write_budget="2MB/s")
    free = tiers_of(disk_path="/nowhere", disk_size="4000MB")
    bounded, unbounded = checked_run(tiers(budget))[0], checked_run(tiers(free))[0]
    seconds = bounded.simulated_s + 10.0  # the budget begins with ten seconds' worth
    assert link_bytes(bounded)["ssd of machine 0 write"] <= 2e6 * seconds * 1.05
    assert link_bytes(unbounded)["ssd of machine 0 write"] > 5e6 * unbounded.simulated_s


def test_ranks_have_tiers_of_their_own_and_share_the_disk_of_their_machine() -> None:
    wanted = tiers_of(offloading_size="800MB", disk_path="/nowhere", disk_size="4000MB")
    policies: list[AgentPolicy] = []

    def policy(config: EngineConfig) -> AgentPolicy:
        policies.append(AgentPolicy(config.num_blocks))
        return policies[-1]

    found, built = checked_run(tiers(wanted, ranks_per_machine=2), lanes=12, ranks=3, policy=policy)
    names = [link.name for link in found.links]
    assert [name for name in names if name.startswith("ssd")] == [
        "ssd of machine 0 read", "ssd of machine 0 write", "ssd of machine 1 read", "ssd of machine 1 write",
    ]  # fmt: skip
    assert sum("host link" in name for name in names) == 6
    assert len(built.machines) == 2 and len(policies) == 3
    assert len({id(rank.connector) for rank in built.ranks}) == 3
    assert all(stats.stored_blocks > 0 for stats in found.stats)
    assert cached_share(found) > 0.9


def test_equal_runs_are_equal() -> None:
    wanted = tiers_of(offloading_size="300MB", disk_path="/nowhere", disk_size="4000MB")
    one, two = (checked_run(tiers(wanted))[0] for _ in range(2))
    assert one.records == two.records and one.timings == two.timings and one.links == two.links


def test_the_articles_configuration() -> None:
    wanted = tiers_of(
        '{"kv_connector":"UMBPStoreConnector","kv_role":"kv_both","kv_load_failure_policy":"recompute",'
        '"kv_connector_extra_config":{"mode":"embedded","total_capacity_bytes":68719476736}}'
    )
    assert wanted is not None
    model, device = load_model("deepseek-v4-pro"), load_device("B200")
    layout = Layout(dp=8, ep=True)
    found = tiers_on(device, model, layout, wanted)
    per_token = model.kv_bytes_per_token(layout.kv(model))
    assert found.block_bytes == per_token * model.block_tokens
    assert found.ranks_per_machine == 8 and found.ssd is None
    engine = EngineConfig(num_blocks=4096, block_tokens=model.block_tokens)
    built = found.build(engine, [LRU() for _ in range(8)])
    assert built.sizes.host_blocks[0] == pytest.approx((64 << 30) / (per_token * model.block_tokens), rel=0.01)
    assert len(built.links()) == 16


def test_a_rank_of_several_devices_keeps_all_of_their_shards() -> None:
    wanted = tiers_of(offloading_size="64", disk_path="/nowhere", disk_size="1000")
    assert wanted is not None
    model, device = load_model("deepseek-r1"), load_device("b200")
    tp, dcp = Layout(tp=8), Layout(tp=8, dcp=8)
    whole, shared = (tiers_on(device, model, layout, wanted) for layout in (tp, dcp))
    engine = EngineConfig(num_blocks=4096, block_tokens=model.block_tokens)
    # Latent KV is on every device whole, unless DCP divides the tokens; then a block covers eight times as many.
    assert whole.block_bytes == shared.block_bytes
    assert whole.kept_bytes == shared.kept_bytes == 8 * whole.block_bytes
    assert whole.ranks_per_machine == 1 and whole.sizes(engine) == shared.sizes(engine)
    gqa = tiers_on(device, load_model("qwen3-235b"), Layout(tp=4), wanted)
    alone = tiers_on(device, load_model("qwen3-235b"), Layout(), wanted)
    assert gqa.block_bytes == alone.block_bytes / 4 and gqa.kept_bytes == alone.kept_bytes
    once, divided = (tiers_on(device, model, layout, wanted, keep_once=True) for layout in (tp, dcp))
    assert once.kept_bytes == once.block_bytes == whole.block_bytes and divided == shared
    assert once.sizes(engine).host_blocks[0] == pytest.approx(8 * whole.sizes(engine).host_blocks[0], rel=0.01)


def test_machines_are_as_large_as_the_devices_file_says() -> None:
    wanted = tiers_of(offloading_size="64", disk_path="/nowhere", disk_size="1000")
    assert wanted is not None
    model, layout = load_model("deepseek-v4-flash"), Layout(dp=8, ep=True)
    ranks = {name: tiers_on(load_device(name), model, layout, wanted).ranks_per_machine for name in ("b200", "gb300")}
    assert ranks == {"b200": 8, "gb300": 4}
    pairs = [tiers_on(load_device(name), model, Layout(tp=2), wanted, replicas=4).ssd for name in ("b200", "gb300")]
    assert [load_device("b200").link("ssd").in_bytes_per_s / one.in_bytes_per_s for one in pairs if one] == [4, 2]


def test_a_device_without_such_a_link_is_refused_by_name() -> None:
    wanted = tiers_of(offloading_size="64")
    assert wanted is not None
    with pytest.raises(ConfigError, match=r"\[links\.host\]"):
        tiers_on(load_device("gb10"), load_model("deepseek-r1"), Layout(), wanted)
    with pytest.raises(ConfigError, match="disk"):
        tiers(tiers_of(disk_path="/nowhere", disk_size="1"), ssd=None)
    with pytest.raises(ConfigError, match="holds no block"):
        checked_run(tiers(tiers_of(offloading_size="100KB")))


def test_computing_a_block_takes_its_share_of_a_full_step() -> None:
    engine = EngineConfig(num_blocks=1000, block_tokens=64, max_num_batched_tokens=2048)
    assert compute_block_s(STEPS, 1, engine) == pytest.approx((0.005 + 2048 * 0.0005) / 32)
    assert SSD.in_bytes_per_s < HOST.in_bytes_per_s


def test_nothing_here_needs_torch() -> None:
    code = "import sys, samovar.sim.tiers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_engines_that_are_not_simulated_get_their_share_of_the_disk() -> None:
    wanted = tiers_of(disk_path="/nowhere", disk_size="1000")
    assert wanted is not None
    device, model = load_device("b200"), load_model("qwen3-235b")
    alone = tiers_on(device, model, Layout(tp=2), wanted)
    two = tiers_on(device, model, Layout(tp=2), wanted, replicas=2)
    many = tiers_on(device, model, Layout(tp=2), wanted, replicas=16)  # four of them on a machine
    assert alone.ssd is not None and two.ssd is not None and many.ssd is not None
    assert alone.ssd == device.link("ssd")
    assert two.ssd.in_bytes_per_s == alone.ssd.in_bytes_per_s / 2
    assert many.ssd.out_bytes_per_s == alone.ssd.out_bytes_per_s / 4


@pytest.mark.parametrize("devices", [1, 8])
def test_devices_of_a_rank_commit_as_much_each_as_one_alone(devices: int) -> None:
    """16 blocks of 2 MB in 32 MiB, however many shards a block has beside them."""
    wanted = tiers_of(offloading_size="4000MB", disk_path="/nowhere", disk_size="4000MB")
    built = tiers(wanted, block_bytes=2e6, kept_bytes=2e6 * devices).build(EngineConfig(200, 64), [LRU()])
    connector, keys = built.ranks[0].connector, chain(list(range(40)))
    stored, _ = connector.store(TransferId(0), keys, b"", "s", 0.0)
    assert len(stored) == 40
    connector.transferred(TransferDone(TransferId(0)), 0.0)
    connector.turn_ended("s", keys, keep=True, now=0.0)
    assert [len(move.keys) for move in connector.moves(0.0)] == [16, 16, 8]


def test_taking_steps_together_changes_nothing_beside_transfers() -> None:
    wanted = tiers_of(offloading_size="400MB", disk_path="/nowhere", disk_size="4000MB")
    scripts = conversations(3, TURNS, output=150)
    changes = {"tiers": tiers(wanted), "num_blocks": 260, "lanes": 3}
    calls: list[Call] = []

    def recorder(config: EngineConfig, policy: RetentionPolicy, connector: Connector | None) -> Recorder:
        return Recorder(config, policy, connector, sink=calls.append)

    fast = Simulation(run_settings(**changes), scripts, lambda share: None, recorder).run()
    slow = run(scripts, fast_forward=False, **changes)
    assert slow == replace(fast, took_s=slow.took_s)
    rounds = sum(call.call.rounds for call in calls if isinstance(call.call, Advance))
    assert fast.stats[0].loaded_blocks > 1000
    assert rounds > fast.stats[0].steps * 0.75, "little was taken together"


def test_verified_loads_are_compared_and_never_differ() -> None:
    found, _ = checked_run(tiers(), kv_verify=2)
    stats = found.stats[0]
    assert stats.verified_blocks > 100 and stats.differing_blocks == 0
    assert all(record.status == "ok" for record in found.records)
