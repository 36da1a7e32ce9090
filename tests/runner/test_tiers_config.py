"""Flags of the tiers and of retention: what is refused before anything is loaded, and why."""

from __future__ import annotations

import msgspec
import pytest

from samovar.base.errors import ConfigError
from samovar.core.calls import LogHeader
from samovar.core.config import EngineConfig
from samovar.runner.config import EngineProcessConfig
from samovar.runner.retention import make_policy, policy_of

ARTICLE = (
    '{"kv_connector":"UMBPStoreConnector","kv_role":"kv_both","kv_load_failure_policy":"recompute",'
    '"kv_connector_extra_config":{"mode":"embedded","total_capacity_bytes":68719476736}}'
)


def config(**values: object) -> EngineProcessConfig:
    return EngineProcessConfig(**{"model": "m", "cache_dir": "c", **values})  # type: ignore[arg-type]


def test_nothing_is_asked_for_by_default() -> None:
    assert config().tiers() is None and config().retention_policy == "agent"


def test_the_articles_configuration() -> None:
    tiers = config(kv_transfer_config=ARTICLE).tiers()
    assert tiers is not None and tiers.hosts[0].num_bytes == 64 << 30 and tiers.disk is None


def test_the_short_flags() -> None:
    tiers = config(kv_offloading_size="8", kv_disk_path="d", kv_disk_size="64GiB", kv_disk_write_budget="50MiB").tiers()
    assert tiers is not None and tiers.disk is not None
    assert (tiers.hosts[0].num_bytes, tiers.disk.num_bytes) == (8 << 30, 64 << 30)
    assert tiers.disk.write_bytes_per_s == 50 << 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kv_transfer_config": "{"}, "--kv-transfer-config"),
        ({"kv_transfer_config": ARTICLE.replace("embedded", "remote")}, "remote"),
        ({"kv_transfer_config": ARTICLE.replace("recompute", "fail")}, "kv_load_failure_policy 'fail'"),
        ({"kv_transfer_config": ARTICLE, "kv_offloading_size": "8"}, "--kv-offloading-size"),
        ({"kv_offloading_size": "eight"}, "give a number of GiB, or one with a unit such as 512MiB"),
        ({"kv_offloading_size": "370000"}, "a number without a unit is GiB, at most 65536"),
        ({"kv_offloading_size": "nan"}, "--kv-offloading-size is 'nan'"),
        ({"kv_offloading_size": "-1"}, "it must be more than 0"),
        ({"kv_disk_path": "d", "kv_disk_size": "1KiB"}, "--kv-disk-size is '1KiB': a disk tier takes at least 655360"),
        ({"kv_disk_size": "8"}, "--kv-disk-size is given without --kv-disk-path"),
        ({"kv_disk_path": "d"}, "--kv-disk-path is given without --kv-disk-size"),
        ({"kv_disk_write_budget": "8MiB"}, "--kv-disk-write-budget is given without"),
        ({"kv_offloading_size": "8", "enable_prefix_caching": False}, "--kv-offloading-size has no effect"),
        ({"kv_disk_path": "d", "kv_disk_size": "8", "enable_prefix_caching": False}, "--kv-disk-path has no effect"),
        ({"kv_transfer_config": ARTICLE, "enable_prefix_caching": False}, "--kv-transfer-config has no effect"),
        ({"kv_verify": 5}, "--kv-verify 5 has no effect"),
        ({"kv_verify": -1, "kv_offloading_size": "8"}, "--kv-verify must be at least 0, got -1"),
        ({"retention_policy": "mru"}, "--retention-policy must be one of lru, ttl, agent"),
        ({"retention_ttl_s": 5.0}, "--retention-ttl-s 5.0 has no effect with --retention-policy agent"),
        ({"retention_policy": "ttl", "retention_ttl_s": 0.0}, "--retention-ttl-s must be more than 0, got 0.0"),
        ({"retention_policy": "ttl", "retention_ttl_s": float("nan")}, "must be more than 0, got nan"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**values)
    assert message in caught.value.message


def test_it_crosses_the_border_between_processes() -> None:
    sent = config(kv_offloading_size="8", kv_verify=3, retention_policy="ttl", retention_ttl_s=7.5)
    assert msgspec.json.decode(msgspec.json.encode(sent), type=EngineProcessConfig) == sent


@pytest.mark.parametrize(("name", "ttl_s"), [("lru", None), ("agent", None), ("ttl", None), ("ttl", 7.5)])
def test_a_logs_policy_is_made_again(name: str, ttl_s: float | None) -> None:
    header = LogHeader(EngineConfig(8, max_model_len=100), name, False, ttl_s)
    again = policy_of(msgspec.msgpack.decode(msgspec.msgpack.encode(header), type=LogHeader))
    assert again.name == name and type(again) is type(make_policy(name, 8, ttl_s))
    if ttl_s is not None:
        assert "8 s" in again.outlook("anyone", 0.0).why


def test_an_unknown_policy_in_a_log_is_named() -> None:
    with pytest.raises(ConfigError, match="'gone'"):
        policy_of(LogHeader(EngineConfig(8, max_model_len=100), "gone"))
