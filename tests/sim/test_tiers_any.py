"""Whole runs over tiers of any size: they end, no request fails, and what must hold of every run does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.kv.settings import tiers_of
from samovar.policy.agent import AgentPolicy
from samovar.policy.lru import LRU
from samovar.spec.link import Link
from tests.sim.tier_runs import conversations, run, tiers

POLICIES = {"lru": lambda config: LRU(), "agent": lambda config: AgentPolicy(config.num_blocks)}


@settings(max_examples=12, deadline=None)
@given(
    lanes=st.integers(1, 5),
    num_blocks=st.sampled_from([125, 200, 420]),
    host=st.sampled_from(["2MB", "50MB", "300MB", "2000MB"]),
    disk=st.sampled_from([None, "300MB", "4000MB"]),
    budget=st.sampled_from([None, "5MB/s"]),
    slow=st.booleans(),
    ranks=st.sampled_from([1, 2, 3]),
    shared=st.booleans(),
    policy=st.sampled_from(sorted(POLICIES)),
    output=st.sampled_from([20, 150]),
)
def test_any_sizes(
    lanes: int,
    num_blocks: int,
    host: str,
    disk: str | None,
    budget: str | None,
    slow: bool,
    ranks: int,
    shared: bool,
    policy: str,
    output: int,
) -> None:
    path = None if disk is None else "/nowhere"
    wanted = tiers_of(
        offloading_size=host, disk_path=path, disk_size=disk, disk_write_budget=None if disk is None else budget
    )
    speed = 2e6 if slow else 2e9  # 60 s for a conversation: loads are late, or not worth it
    built = tiers(
        wanted,
        host=Link("host", "test", speed, speed, 1e-4),
        ssd=Link("ssd", "test", speed / 4, speed / 8, 1e-3),
        shared=shared,
        ranks_per_machine=2,
    )
    changes = {
        "tiers": built,
        "num_blocks": num_blocks,
        "lanes": lanes,
        "ranks": ranks,
        "balancer": "round-robin" if shared else "sticky",
        "policy": POLICIES[policy],
    }
    scripts = conversations(lanes, 4, output=output)
    found = run(scripts, **changes)
    assert len(found.records) == 4 * lanes and all(record.status == "ok" for record in found.records)
    assert all(link.bytes <= link.bandwidth * link.elapsed_s * (1 + 1e-9) for link in found.links)
    stepped = run(scripts, fast_forward=False, **changes)
    assert stepped == replace(found, took_s=stepped.took_s)
