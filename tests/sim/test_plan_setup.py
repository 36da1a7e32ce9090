"""A configuration by its flags: what fits, what it becomes for the simulator, and in whose words it is refused."""

from __future__ import annotations

from dataclasses import replace
import pickle

import pytest

from samovar.base.errors import ConfigError
from samovar.kv.settings import tiers_of
from samovar.policy.lru import LRU
from samovar.sim.cost.capacity import Memory, capacity_tokens
from samovar.sim.cost.layout import Layout
from samovar.sim.plan_setup import (
    Rules,
    engine_config,
    kv_tokens,
    lanes_of,
    num_pools,
    num_replicas,
    scaled_tiers,
    sim_settings,
    tiers_of_pool,
)
from samovar.sim.settings import Acceptance
from samovar.spec.catalog import load_device
from samovar.workload.replay import ReplayConfig
from tests.sim.plan_made import hardware, setup


def test_capacity_is_the_cost_models_in_whole_blocks() -> None:
    host = hardware()
    for layout in (Layout(tp=8), Layout(tp=8, dcp=8), Layout(dp=8, ep=True)):
        one = setup(layout=layout, max_num_seqs=16)
        tokens = capacity_tokens(host.model, host.device, layout, Memory(max_num_seqs=16))
        engine = engine_config(host, one)
        assert kv_tokens(host, one) == tokens == engine.num_blocks * engine.block_tokens
        assert engine.block_tokens == 64 * layout.dcp


def test_capacity_given_counts_blocks_of_the_layout() -> None:
    one = setup(layout=Layout(tp=8, dcp=8), num_gpu_blocks_override=1000)
    assert kv_tokens(hardware(), one) == 512_000
    assert engine_config(hardware(), one).num_blocks == 1000


def test_engines_share_lanes_and_devices() -> None:
    host, one = hardware("deepseek-v4-pro"), setup(layout=Layout(tp=4))
    assert num_replicas(host, one.layout) == 2
    assert lanes_of(host, one, 16) == 8
    rules = Rules(replay=ReplayConfig(concurrency=16), duration_s=60)
    made = sim_settings(host, replace(one, num_gpu_blocks_override=1000), rules)
    assert (made.replay.concurrency, made.ranks, made.engines) == (16, 1, 2)
    with pytest.raises(ConfigError, match="--concurrency 3: 2 engines"):
        lanes_of(host, one, 3)


def test_ranks_step_together_and_drafts_plan_one_step() -> None:
    host = hardware("deepseek-v4-pro")
    one = setup(layout=Layout(dp=8, ep=True), acceptance=Acceptance(3, 2.49))
    made = sim_settings(host, one, Rules(replay=ReplayConfig(concurrency=8), duration_s=60))
    assert (made.ranks, made.engines) == (8, 1)
    assert (made.engine.depth, made.engine.num_speculative_tokens) == (1, 3)
    assert sim_settings(host, setup(layout=Layout(dp=8, ep=True)), Rules(
        replay=ReplayConfig(concurrency=8), duration_s=60)).engine.depth == 2  # fmt: skip


def test_tiers_are_shared_out_over_all_ranks() -> None:
    host = hardware("deepseek-v4-pro")
    tiers = tiers_of(offloading_size="64", disk_path="/d", disk_size="160GiB", disk_write_budget="80MiB")
    assert tiers is not None
    of_rank = tiers_of_pool(host, setup(layout=Layout(dp=8, ep=True), tiers=tiers))
    assert of_rank is not None and of_rank.disk is not None
    assert of_rank.hosts[0].num_bytes == 8 << 30
    assert (of_rank.disk.num_bytes, of_rank.disk.write_bytes_per_s) == (20 << 30, 10 << 20)
    halves = tiers_of_pool(host, setup(layout=Layout(tp=4), tiers=tiers))
    assert halves is not None and halves.hosts[0].num_bytes == 32 << 30
    assert scaled_tiers(of_rank, 8) == tiers
    for layout, size in ((Layout(dp=8, ep=True), 64), (Layout(tp=4), 32)):
        shared = tiers_of_pool(host, setup(layout=layout, tiers=tiers, shared_tiers=True))
        assert shared is not None and shared.hosts[0].num_bytes == size << 30
    wide = tiers_of_pool(
        hardware("deepseek-v4-pro", gpus=16), setup(layout=Layout(dp=16, ep=True), tiers=tiers, shared_tiers=True)
    )
    assert wide is not None and wide.hosts[0].num_bytes == 32 << 30
    trays = replace(host, device=load_device("gb200"))
    of_tray = tiers_of_pool(trays, setup(layout=Layout(dp=8, ep=True), tiers=tiers, shared_tiers=True))
    assert of_tray is not None and of_tray.hosts[0].num_bytes == 32 << 30
    made = sim_settings(host, setup(tiers=tiers), Rules(replay=ReplayConfig(concurrency=1), duration_s=60))
    assert made.tiers is not None


@pytest.mark.parametrize("layout", [Layout(dp=16), Layout(tp=2, dp=8), Layout(tp=4, dp=4), Layout(tp=16, dp=2)])
@pytest.mark.parametrize("shared", [False, True])
def test_as_many_pools_are_counted_as_are_built(layout: Layout, shared: bool) -> None:
    host = hardware("deepseek-v4-flash", gpus=32)
    one = setup(layout=layout, tiers=tiers_of(offloading_size="64"), shared_tiers=shared, num_gpu_blocks_override=2000)
    made = sim_settings(host, one, Rules(replay=ReplayConfig(concurrency=32), duration_s=60))
    assert made.tiers is not None
    built = made.tiers.build(made.engine, [LRU() for _ in range(made.ranks)])
    pools = {id(rank.mover._contents) for rank in built.ranks}  # type: ignore[attr-defined]
    assert num_pools(host, layout, shared) == made.engines * len(pools)


def test_setups_are_keys_and_cross_processes() -> None:
    one = setup(tiers=tiers_of(offloading_size="8"))
    assert {one: 1}[pickle.loads(pickle.dumps(one))] == 1
    host = hardware()
    assert pickle.loads(pickle.dumps(host)) == host


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_model_len": 3_000_000}, "a request of 3,000,000 tokens does not fit: one rank keeps the KV of 2,6"),
        ({"layout": Layout(tp=2)}, "a rank needs 302.0 GB beside its KV"),
        ({"num_gpu_blocks_override": 0}, "--num-gpu-blocks-override is 0; it must be at least 1"),
        ({"acceptance": Acceptance(3, 2.0)}, "--num-speculative-tokens is 3, but Kimi-K2.6 has no draft layer"),
        ({"long_prefill_token_threshold": 8192}, "long_prefill_token_threshold 8192 has no effect"),
        ({"layout": Layout(tp=8, mode="mono", dcp=8)}, "--monokernel works with tensor parallelism alone"),
        ({"gpu_memory_utilization": 1.5}, "--gpu-memory-utilization is 1.5"),
    ],
)
def test_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        engine_config(hardware(), setup(**fields))
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: hardware(gpus=0), "--gpus is 0; it must be at least 1"),
        (lambda: num_replicas(hardware(gpus=6), Layout(tp=4)), "--gpus is 6; it must be a multiple of"),
        (lambda: Rules(replay=ReplayConfig(concurrency=1), duration_s=0), "--duration is 0 s; it must be at least 1"),
        (
            lambda: Rules(replay=ReplayConfig(concurrency=1), duration_s=1, grace_s=-1),
            "--grace is -1 s; it must be at least 0",
        ),
    ],
)
def test_refused_around_it(change: object, message: str) -> None:
    assert callable(change)
    with pytest.raises(ConfigError) as raised:
        change()
    assert message in raised.value.message
