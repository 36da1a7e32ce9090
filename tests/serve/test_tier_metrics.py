"""What /metrics says of tiers, hits, misses, loads and hints."""

from __future__ import annotations

import pytest

from samovar.core.stats import EngineStats, TierReport
from samovar.serve import misses
from samovar.serve.engine_metrics import MISS_REASONS
from samovar.serve.tier_metrics import MAX_LABELS, OTHER, TierMetrics
from tests.serve.asgi import Server
from tests.serve.cache_samples import LiveDay, Samples, report, samples
from tests.serve.conftest import MakeServer


@pytest.fixture
def day() -> LiveDay:
    found = LiveDay()
    found.seconds(400)
    return found


@pytest.fixture
def busy(make_server: MakeServer, day: LiveDay) -> Server:
    server = make_server()
    server.service.snapshot, server.service.report = day.stats(), day.report()
    return server


async def test_metrics_of_tiers(busy: Server, day: LiveDay) -> None:
    found, stats = await samples(busy), day.stats()
    by_tier = {dict(labels)["tier"]: v for (name, labels), v in found.items() if name == "samovar:cached_tokens_total"}
    assert by_tier == stats.cached_tokens_by_tier and sum(by_tier.values()) == stats.prompt_tokens_cached
    external = by_tier["host"] + by_tier["disk"]
    sources = {
        dict(labels)["source"]: value
        for (name, labels), value in found.items()
        if name == "vllm:prompt_tokens_by_source_total"
    }
    assert sources == {
        "local_compute": stats.prompt_tokens_computed,
        "local_cache_hit": by_tier["device"],
        "external_kv_transfer": external,
    }
    assert sum(sources.values()) == stats.prompt_tokens
    for tier in by_tier:
        assert found["vllm:prompt_tokens_cached_by_source_total", (("source", tier),)] == by_tier[tier]
    for name, value in {
        "vllm:prefix_cache_hits_total": by_tier["device"],
        "vllm:external_prefix_cache_hits_total": external,
        "vllm:external_prefix_cache_queries_total": stats.prompt_tokens - by_tier["device"],
        "vllm:kv_offload_load_bytes_total": stats.loaded_blocks * (2 << 20),
        "samovar:wasted_load_blocks_total": stats.wasted_load_blocks,
        "samovar:declined_load_blocks_total": 212,
        "samovar:prefetched_blocks_total": stats.prefetched_blocks,
        "samovar:regretted_tokens_total": stats.regretted_tokens,
        "samovar:prefix_cache_ceiling_tokens_total": stats.ceiling_tokens,
        "samovar:prefix_cache_hit_ratio": stats.prompt_tokens_cached / stats.prompt_tokens,
        "samovar:prefix_cache_ceiling_ratio": stats.ceiling_tokens / stats.prompt_tokens,
        "samovar:saved_seconds": stats.saved_s,
        "samovar:prefill_tokens_per_second": 8200,
        "samovar:sessions": len(day.agents),
    }.items():
        assert found[name, ()] == pytest.approx(value), name
    disk = day.report().tiers[2]
    for name, value in {
        "samovar:tier_capacity_blocks": disk.num_blocks, "samovar:tier_used_blocks": disk.num_used_blocks,
        "samovar:tier_capacity_bytes": disk.capacity_bytes, "samovar:tier_physical_bytes": disk.physical_bytes,
        "samovar:tier_not_yet_durable_blocks": 38, "samovar:tier_load_bytes_per_second": 1.3e9,
        "samovar:tier_loaded_blocks_total": disk.loaded_blocks, "samovar:tier_stored_blocks_total": disk.stored_blocks,
        "samovar:tier_evicted_blocks_total": disk.evicted_blocks,
    }.items():  # fmt: skip
        assert found[name, (("tier", "disk"),)] == value, name
    assert found["samovar:tier_failed_blocks_total", (("reason", "late"), ("tier", "disk"))] == 2
    assert found["samovar:failed_load_blocks_by_reason_total", (("reason", "checksum"),)] == 1
    assert found["samovar:hints_total", (("action", "resume_in"), ("status", "clipped"))] == 2


async def test_metrics_name_no_session(busy: Server, day: LiveDay) -> None:
    page = (await busy.client.get("/metrics")).text
    assert "claude" not in page and "WebFetch" not in page


async def test_no_tier_of_another_name_is_lost(make_server: MakeServer) -> None:
    """Two tiers of one name, and one that vLLM has no word for."""
    server = make_server()
    server.service.report = report(tiers=tuple(TierReport(tier, num_blocks=5) for tier in ("host", "host", "pool")))
    server.service.snapshot = EngineStats(
        prompt_tokens=9, prompt_tokens_cached=9, prefix_hits_tokens=9, cached_tokens_by_tier={"pool": 9}
    )
    found = await samples(server)
    assert found["samovar:tier_capacity_blocks", (("tier", "host"),)] == 10
    assert found["vllm:prompt_tokens_cached_by_source_total", (("source", "external_unspecified"),)] == 9
    assert found["samovar:cached_tokens_total", (("tier", "pool"),)] == 9


async def test_labels_are_bounded_and_lose_nothing(make_server: MakeServer) -> None:
    """Whatever reasons the engine comes up with: so many series, the same sum, and none changes its meaning."""
    server = make_server()
    before: Samples = {}
    for count in (10, 100, 1000):
        reasons = {f"reason-{at}": at + count for at in range(count)} | {"With spaces\n": 1}
        server.service.snapshot = EngineStats(misses=reasons, failed_load_reasons=reasons, hints=reasons)
        server.service.report = report(tiers=(TierReport("disk", failed=reasons),))
        found = await samples(server)
        for name in (
            "samovar:prefix_cache_misses_total", "samovar:failed_load_blocks_by_reason_total",
            "samovar:tier_failed_blocks_total", "samovar:hints_total",
        ):  # fmt: skip
            series = {labels: value for (other, labels), value in found.items() if other == name}
            assert len(series) <= MAX_LABELS + len(MISS_REASONS) + 1
            assert sum(series.values()) == sum(reasons.values())
            assert all(found[key] >= value for key, value in before.items() if key[0] == name)
            assert OTHER in {value for labels in series for _, value in labels}
        before = found


async def test_every_reason_of_a_miss_has_a_series_from_the_start(make_server: MakeServer) -> None:
    found = await samples(make_server())
    for reason in MISS_REASONS:
        assert found["samovar:prefix_cache_misses_total", (("reason", reason),)] == 0
    assert set(MISS_REASONS) == set(misses._MEANINGS)


def test_tiers_of_several_connectors_keep_their_names() -> None:
    names = ("UMBPStoreConnector-1:host", "UMBPStoreConnector-2:host", "UMBPStoreConnector-2:disk")
    tiers = tuple(TierReport(name, 10, 1, 100, 100, 1000) for name in names)
    gauge = next(iter(TierMetrics((), ()).collect(tiers)))
    assert {sample.labels["tier"] for sample in gauge.samples} == set(names)
