"""Tiers under the tiny model: the same greedy tokens with and without them, after a restart, and under faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from tests.runner.conftest import Tiny
from tests.runner.tier_rig import BLOCK, Conversations, TierRig, host_of, make_rig

from samovar.core.plan import StepPlan, TransferDone
from samovar.core.ports import Mover
from samovar.kv.layout import BlockLayout
from samovar.kv.settings import TierSettings, tiers_of
from samovar.models.checkpoint import open_folder
from samovar.models.load import Model, load_model
from samovar.policy.agent import AgentPolicy
from samovar.policy.lru import LRU
from samovar.pool.arena import slot_stride_bytes

pytestmark = pytest.mark.torch

AGENTS, FIRST_TOKENS, ROUNDS = 5, 40, 3
"""40 + 3 turns of 9 tokens: 17 blocks each at the end, 85 in all, on a device of 24."""
BLOCK_BYTES = 2 * 2 * 2 * 8 * BLOCK * 4
"""Keys and values of 2 layers, 2 heads of 8 floats."""


@pytest.fixture(scope="module")
def model(tiny: Tiny) -> Model:
    return load_model(open_folder(tiny.folder), "float32")


@pytest.fixture
def rigs(model: Model) -> Iterator:  # type: ignore[type-arg]
    made: list[TierRig] = []

    def make(settings: TierSettings | None, **values) -> TierRig:  # type: ignore[no-untyped-def]
        made.append(make_rig(model, settings, **values))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def disk_at(path: Path, host_blocks: int) -> TierSettings:
    settings = tiers_of(
        offloading_size=f"{host_blocks * slot_stride_bytes(BLOCK_BYTES)}B",
        disk_path=str(path / "disk"),
        disk_size="8MiB",
    )
    assert settings is not None
    return settings


def tiers_in(tmp_path: Path, kind: str) -> TierSettings:
    return host_of(200, BLOCK_BYTES) if kind == "host" else disk_at(tmp_path, 40)


def assert_right(rig: TierRig, tiny: Tiny, talks: Conversations, numbers: list[int]) -> None:
    """What the last round said is what transformers says."""
    for agent, number in enumerate(numbers[-AGENTS:]):
        made = rig.made[number]
        prompt = talks.histories[agent][: -3 - len(made)]
        assert made == tiny.greedy(prompt, len(made)), agent


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("policy", ["lru", "agent"])
@pytest.mark.parametrize("kind", ["host", "disk"])
def test_evicted_blocks_come_back_and_say_the_same(
    tiny: Tiny, rigs, tmp_path: Path, kind: str, policy: str, depth: int
) -> None:  # type: ignore[no-untyped-def]
    """The device holds one conversation of five. From the second round on everything but the new tokens is loaded."""
    order = LRU() if policy == "lru" else AgentPolicy(24)
    rig = rigs(tiers_in(tmp_path, kind), policy=order, depth=depth)
    bare, talks, same = rigs(None), Conversations(AGENTS, FIRST_TOKENS), Conversations(AGENTS, FIRST_TOKENS)
    numbers = talks.rounds(rig, ROUNDS)
    same.rounds(bare, ROUNDS)
    assert rig.made == bare.made and talks.histories == same.histories
    assert_right(rig, tiny, talks, numbers)
    stats, without = rig.engine.stats(), bare.engine.stats()
    assert without.prompt_tokens_computed > 2 * stats.prompt_tokens_computed
    assert stats.loaded_blocks > 0 and stats.failed_load_blocks == 0
    found = stats.cached_tokens_by_tier
    assert sum(found.values()) == stats.prompt_tokens_cached and found[kind] > 0
    assert kind == "disk" or "disk" not in found
    for number in numbers[AGENTS:]:
        assert rig.ends[number].num_cached_tokens >= FIRST_TOKENS // BLOCK * BLOCK


def test_a_restart_finds_what_was_there(tiny: Tiny, rigs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    talks, settings = Conversations(AGENTS, FIRST_TOKENS), disk_at(tmp_path, 200)
    rig = rigs(settings)
    talks.rounds(rig, 2)
    assert "disk tier: 0 blocks of 0 conversations found" in rig.reports[0]
    rig.close()
    again = rigs(settings)
    assert f"of {AGENTS} conversations found" in again.reports[0]
    before = [len(history) for history in talks.histories]
    numbers = talks.rounds(again, 1)
    for length, number in zip(before, numbers, strict=True):
        # All full blocks that had been computed: the last token said and three new ones had not.
        assert again.ends[number].num_cached_tokens == (length - 4) // BLOCK * BLOCK
    assert again.engine.stats().cached_tokens_by_tier["disk"] > 0
    assert_right(again, tiny, talks, numbers)


@pytest.mark.parametrize("there", [4 << 20, 1 << 30, None])
def test_a_disk_is_no_larger_than_its_file_system(  # type: ignore[no-untyped-def]
    rigs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int | None
) -> None:
    monkeypatch.setattr("samovar.runner.tiers.disk_available_bytes", lambda folder, namespace: there)
    rig = rigs(disk_at(tmp_path, 200))
    warned = [text for text in rig.tiers.sizes.warnings if "free for it in" in text]
    assert len(warned) == (there == 4 << 20)
    assert rig.tiers.disk.stats().capacity_bytes == ((4 << 20) * 10 // 11 if warned else 8 << 20)


def test_another_namespace_finds_nothing_and_destroys_nothing(rigs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    talks, settings = Conversations(1, FIRST_TOKENS), disk_at(tmp_path, 200)
    rig = rigs(settings)
    talks.rounds(rig, 1)
    rig.close()
    other = rigs(settings, namespace=b"o" * 16)
    assert "disk tier: 0 blocks" in other.reports[0]
    Conversations(1, FIRST_TOKENS, seed=2).rounds(other, 1)
    other.close()
    assert "of 1 conversations" in rigs(settings).reports[0]


class Breaking:
    """A mover that raises from its nth call of `start` or `done` on."""

    def __init__(self, inner: Mover, breaks: str, after: int) -> None:
        self._inner, self._breaks, self._left = inner, breaks, after
        self.closed = 0

    def _count(self, method: str) -> None:
        if method == self._breaks:
            self._left -= 1
            if self._left < 0:
                raise RuntimeError(f"{method} is broken")

    def start(self, plan: StepPlan) -> None:
        self._count("start")
        self._inner.start(plan)

    def done(self) -> Sequence[TransferDone]:
        self._count("done")
        return self._inner.done()

    def close(self) -> None:
        self.closed += 1
        self._inner.close()


@pytest.mark.parametrize(("breaks", "after"), [("start", 0), ("start", 9), ("done", 0), ("done", 40)])
def test_a_mover_that_raises_costs_misses(  # type: ignore[no-untyped-def]
    tiny: Tiny, rigs, tmp_path: Path, breaks: str, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    """From its first call on, or in the middle of loads and stores: what was begun fails, and nothing stays pinned."""
    movers: list[Breaking] = []

    def broken(inner: Mover) -> Mover:
        movers.append(Breaking(inner, breaks, after))
        return movers[0]

    rig = rigs(disk_at(tmp_path, 200), wrap=broken)
    talks = Conversations(AGENTS, FIRST_TOKENS)
    numbers = talks.rounds(rig, 3)
    assert_right(rig, tiny, talks, numbers)
    assert movers[0].closed == 1 and caplog.text.count("given up") == 1
    tiers = {tier.tier: tier for tier in rig.engine.cache_report(0.0).tiers}
    assert sum(tier.failed.get("io", 0) for tier in tiers.values()) > 0
    if after == 0:
        assert tiers["host"].num_used_blocks == tiers["disk"].num_used_blocks == rig.engine.stats().loaded_blocks == 0


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_damaged_bytes_are_a_miss(tiny: Tiny, rigs, tmp_path: Path, kind: str) -> None:  # type: ignore[no-untyped-def]
    """Every slot, or every record, has a wrong byte: a failed load, and the same text as without tiers."""
    settings = tiers_in(tmp_path, kind)
    rig = rigs(settings)
    talks = Conversations(AGENTS, FIRST_TOKENS)
    talks.rounds(rig, 1)
    if kind == "host":
        rig.tiers.mover._host._arena.memory[::BLOCK_BYTES] ^= 0xFF
    else:
        rig.close()
        for segment in (tmp_path / "disk").rglob("*"):
            if segment.is_file() and segment.stat().st_size > 8192:
                data = bytearray(segment.read_bytes())
                for at in range(4096 + 4096 + 100, len(data), 8192):
                    data[at] ^= 0xFF
                segment.write_bytes(data)
        rig = rigs(settings)
    number = talks.turn(rig, 0)
    assert rig.made[number] == tiny.greedy(talks.histories[0][: -3 - len(rig.made[number])], 6)
    assert rig.firsts[number].miss.reason == "failed_load" and rig.ends[number].num_cached_tokens == 0
    stats = rig.engine.stats()
    assert stats.failed_load_reasons["checksum"] > 0 and stats.misses["failed_load"] == 1
    follow = talks.turn(rig, 0)
    assert rig.ends[follow].num_cached_tokens > 0, "what was computed instead is found"


@pytest.mark.parametrize("damaged", [False, True])
def test_verified_loads(  # type: ignore[no-untyped-def]
    tiny: Tiny, rigs, tmp_path: Path, damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every load is computed again. Where putting blocks in place spoils the first of them, behind every checksum, that
    is found, the text is right all the same, and the tier gives those blocks to nobody any more."""
    scatter, spoilt = BlockLayout.scatter, 0

    def spoiling(self: BlockLayout, blocks: Sequence[int], memory: np.ndarray, offsets: Sequence[int]) -> None:
        nonlocal spoilt
        spoilt += 1
        memory = memory.copy()
        memory[offsets[0] + 3] ^= 0x40  # an exponent
        scatter(self, blocks, memory, offsets)

    if damaged:
        monkeypatch.setattr(BlockLayout, "scatter", spoiling)
    rig = rigs(host_of(200, BLOCK_BYTES), kv_verify=1, num_blocks=48)
    talks = Conversations(AGENTS, FIRST_TOKENS)
    numbers = talks.rounds(rig, 4)
    assert_right(rig, tiny, talks, numbers)
    stats = rig.engine.stats()
    assert stats.verified_blocks > 0
    assert stats.differing_blocks == 0 if not damaged else 0 < stats.differing_blocks <= spoilt


def test_two_connectors_over_one_mover(tiny: Tiny, rigs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """What one of them lost the other has; the second has a disk."""
    small = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"num_cpu_blocks": 30}}
    disk = {"disk_path": str(tmp_path / "disk"), "disk_capacity_bytes": "8MiB"}
    large = {
        "kv_connector": "UMBPStoreConnector",
        "kv_connector_extra_config": {"total_capacity_bytes": "40KiB", **disk},
    }
    extra = {"connectors": [small, large]}
    text = json.dumps({"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra})
    rig = rigs(tiers_of(text))
    talks = Conversations(AGENTS, FIRST_TOKENS)
    numbers = talks.rounds(rig, ROUNDS)
    assert_right(rig, tiny, talks, numbers)
    found = rig.engine.stats().cached_tokens_by_tier
    assert found["disk"] > 0 and rig.engine.stats().failed_load_blocks == 0
    for number in numbers[AGENTS:]:
        assert rig.ends[number].num_cached_tokens >= FIRST_TOKENS // BLOCK * BLOCK
