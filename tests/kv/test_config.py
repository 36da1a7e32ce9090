"""`--kv-transfer-config`, the short flags, and the sizes they come to."""

from __future__ import annotations

import json

import pytest

from samovar.base.errors import ConfigError
from samovar.kv.build import build_tiers
from samovar.kv.config import KVTransferConfig
from samovar.kv.multi import MultiConnector
from samovar.kv.settings import DiskSettings, HostSettings, TierSettings, fit, parse_gib, tiers_of
from samovar.kv.tiers import TieredConnector
from samovar.policy.lru import LRU

GIB = 1 << 30
ARTICLE = """{"kv_connector":"UMBPStoreConnector","kv_role":"kv_both","kv_load_failure_policy":"recompute",
  "kv_connector_extra_config":{"mode":"embedded","total_capacity_bytes":68719476736}}"""


def config(connector: str = "UMBPStoreConnector", extra: dict[str, object] | None = None, **fields: object) -> str:
    given = {"total_capacity_bytes": GIB} if extra is None else extra
    return json.dumps({"kv_connector": connector, **fields, "kv_connector_extra_config": given})


def test_the_articles_configuration_unchanged() -> None:
    parsed = KVTransferConfig.parse(ARTICLE)
    assert parsed == KVTransferConfig("UMBPStoreConnector", "kv_both", "recompute", True, 64 * GIB)
    settings = tiers_of(ARTICLE)
    assert settings == TierSettings((HostSettings("UMBPStoreConnector", 64 * GIB),))


@pytest.mark.parametrize(
    ("given", "load_async"),
    [(True, True), (False, False), ("true", True), ("False", False)],
)
def test_load_async(given: object, load_async: bool) -> None:
    extra = {"total_capacity_bytes": GIB, "load_async": given}
    assert KVTransferConfig.parse(config(extra=extra)).load_async is load_async


def test_failure_policy() -> None:
    assert KVTransferConfig.parse(config(kv_load_failure_policy="fail")).kv_load_failure_policy == "fail"
    assert tiers_of(config(kv_load_failure_policy="fail")).load_failure_policy == "fail"  # type: ignore[union-attr]


def test_offloading_connector_in_both_forms() -> None:
    new = KVTransferConfig.parse(config("OffloadingConnector", {"cpu_bytes_to_use": 5e9, "block_size": 64}))
    assert new.host_bytes == 5_000_000_000 and len(new.warnings) == 1
    old = KVTransferConfig.parse(config("OffloadingConnector", {"num_cpu_blocks": 1000}))
    assert old.host_blocks == 1000 and old.host_bytes is None


def test_a_disk_in_the_extra_configuration() -> None:
    extra = {"total_capacity_bytes": "8GiB", "disk_path": "/kv", "disk_capacity_bytes": "64GiB"}
    settings = tiers_of(config(extra=extra | {"disk_write_bytes_per_s": 10**8}))
    assert settings is not None and settings.disk == DiskSettings("/kv", 64 * GIB, 10**8)
    assert settings.hosts[0].num_bytes == 8 * GIB and not settings.notes


def test_a_home_folder_is_not_made_by_the_name_of_its_sign() -> None:
    extra = {"total_capacity_bytes": "8GiB", "disk_path": "~/kv", "disk_capacity_bytes": "64GiB"}
    with pytest.raises(ConfigError, match="disk_path is '~/kv'; nothing expands the ~ here"):
        tiers_of(config(extra=extra))


def test_a_disk_without_a_host_size_gets_memory_to_pass_through() -> None:
    for settings in (
        tiers_of(config(extra={"disk_path": "/kv", "disk_capacity_bytes": GIB})),
        tiers_of(disk_path="/kv", disk_size="64GiB"),
    ):
        assert settings is not None and settings.hosts[0].num_bytes == GIB
        assert len(settings.notes) == 1 and "1 GiB" in settings.notes[0]


def test_several_connectors() -> None:
    parts = [
        json.loads(config("OffloadingConnector", {"cpu_bytes_to_use": 2 * GIB})),
        json.loads(config(extra={"total_capacity_bytes": GIB, "disk_path": "/kv", "disk_capacity_bytes": GIB})),
        json.loads(config("OffloadingConnector", {"cpu_bytes_to_use": 3 * GIB, "eviction_policy": "arc"})),
    ]
    settings = tiers_of(config("MultiConnector", {"connectors": parts}))
    assert settings is not None
    assert [(host.name, host.num_bytes) for host in settings.hosts] == [
        ("OffloadingConnector-1", 2 * GIB),
        ("UMBPStoreConnector", GIB),
        ("OffloadingConnector-2", 3 * GIB),
    ]
    assert settings.disk == DiskSettings("/kv", GIB, None, 1)
    assert settings.warnings == (
        "--kv-transfer-config: kv_connector_extra_config: connectors[2]: kv_connector_extra_config: eviction_policy "
        "has no meaning here and is ignored",
    )


def test_fields_that_vllm_has_warn_once_each() -> None:
    extra = {"total_capacity_bytes": GIB, "lookup_async": True, "save_decode_cache": False}
    settings = tiers_of(config(extra=extra, engine_id="x", kv_connector_module_path="a.b"))
    assert settings is not None
    assert [warning.split(": ")[-1].split()[0] for warning in settings.warnings] == [
        "engine_id",
        "kv_connector_module_path",
        "lookup_async",
        "save_decode_cache",
    ]


TWO_DISKS = [json.loads(config(extra={"disk_path": p, "disk_capacity_bytes": GIB})) for p in ("/a", "/b")]
NESTED = [json.loads(config("MultiConnector", {"connectors": [json.loads(config())]}))]
OTHER_POLICY = [json.loads(config(kv_load_failure_policy="fail"))]


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("{", ["not valid JSON"]),
        ("[]", ["must be an object", "[]"]),
        ('{"kv_connector": "UMBPStoreConnector", "kv_connector": "x"}', ["'kv_connector' is there twice"]),
        ("[" * 100_000, ["not valid JSON"]),
        (config("NixlConnector"), ["kv_connector is 'NixlConnector'", "UMBPStoreConnector", "MultiConnector"]),
        ("{}", ["kv_connector is missing"]),
        (config(kv_role="kv_producer"), ["kv_role is 'kv_producer'", "known: kv_both"]),
        (config(kv_load_failure_policy="retry"), ["kv_load_failure_policy is 'retry'", "recompute, fail"]),
        (config(extra={"mode": "standalone", "total_capacity_bytes": 1}), ["mode is 'standalone'", "embedded"]),
        (config(kv_conector_extra="x"), ["kv_conector_extra is not known here", "kv_connector_extra_config"]),
        (config(extra={"total_capacity_byte": 1}), ["total_capacity_byte is not known", "total_capacity_bytes"]),
        (config(extra={}), ["total_capacity_bytes is missing"]),
        (config(extra={"total_capacity_bytes": 0}), ["total_capacity_bytes is 0", "at least 1"]),
        (config(extra={"total_capacity_bytes": True}), ["total_capacity_bytes is true"]),
        (config(extra={"total_capacity_bytes": 1.5}), ["total_capacity_bytes is 1.5"]),
        (config(extra={"total_capacity_bytes": "much"}), ["total_capacity_bytes is 'much'", "4GiB"]),
        (config(extra={"total_capacity_bytes": 10**30}), ["total_capacity_bytes is 1000"]),
        (config(extra={"total_capacity_bytes": 1, "load_async": "maybe"}), ["load_async is 'maybe'", "true or false"]),
        (config("OffloadingConnector", {}), ["cpu_bytes_to_use is missing"]),
        (config("OffloadingConnector", {"cpu_bytes_to_use": 1, "num_cpu_blocks": 1}), ["num_cpu_blocks", "both"]),
        (config("OffloadingConnector", {"total_capacity_bytes": 1}), ["total_capacity_bytes is not known"]),
        (config(extra={"disk_path": "/kv"}), ["disk_capacity_bytes is missing"]),
        (config(extra={"disk_capacity_bytes": 1}), ["disk_path is missing"]),
        (config(extra={"disk_path": "", "disk_capacity_bytes": 1}), ["disk_path is ''"]),
        (config(extra={"total_capacity_bytes": 1, "disk_write_bytes_per_s": 1}), ["disk_write_bytes_per_s"]),
        (config("MultiConnector", {}), ["connectors is missing", "list"]),
        (config("MultiConnector", {"connectors": []}), ["connectors is []"]),
        (config("MultiConnector", {"connectors": [1]}), ["connectors[0] must be an object"]),
        (config("MultiConnector", {"connectors": NESTED}), ["kv_connector is 'MultiConnector'"]),
        (config("MultiConnector", {"connectors": OTHER_POLICY}), ["kv_load_failure_policy is 'fail'"]),
        (config("MultiConnector", {"connectors": TWO_DISKS}), ["connectors [1]", "one disk"]),
    ],
)
def test_what_is_wrong_is_named(text: str, complaints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        tiers_of(text)
    message = caught.value.message
    assert message.startswith("--kv-transfer-config") and len(message) < 500
    for complaint in complaints:
        assert complaint in message


# -- short flags -------------------------------------------------------------------------------------------------------


def test_short_flags() -> None:
    assert tiers_of() is None
    assert tiers_of(offloading_size="8") == TierSettings((HostSettings("host", 8 * GIB),))
    settings = tiers_of(offloading_size="512MiB", disk_path="/kv", disk_size="64", disk_write_budget="200MB/s")
    assert settings == TierSettings((HostSettings("host", GIB // 2),), DiskSettings("/kv", 64 * GIB, 200_000_000))


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8 * GIB), ("0.5", GIB // 2), ("8GiB", 8 * GIB), ("8 GB", 8 * 10**9), (" 2 ", 2 * GIB)]
)
def test_a_bare_number_is_gib(text: str, size: int) -> None:
    assert parse_gib(text, "--kv-offloading-size") == size


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e12", "eight", "", "1e-12"])
def test_sizes_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match="--kv-offloading-size"):
        tiers_of(offloading_size=text)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"disk_size": "1"}, ["--kv-disk-size", "--kv-disk-path"]),
        ({"disk_path": "/kv"}, ["--kv-disk-path", "--kv-disk-size"]),
        ({"offloading_size": "1", "disk_write_budget": "1MB"}, ["--kv-disk-write-budget", "--kv-disk-path"]),
        ({"kv_transfer_config": ARTICLE, "offloading_size": "8"}, ["--kv-transfer-config", "--kv-offloading-size"]),
        ({"disk_path": "/kv", "disk_size": "1", "disk_write_budget": "fast"}, ["--kv-disk-write-budget", "fast"]),
    ],
)
def test_flags_that_do_nothing_or_say_it_twice(flags: dict[str, str], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        tiers_of(**flags)
    assert all(name in caught.value.message for name in named)


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_sizes_in_blocks() -> None:
    """Of what a block takes: multiples of 4096 bytes in memory, as many and a header on disk."""
    settings = TierSettings((HostSettings("host", 100 * 4096 + 50),), DiskSettings("/kv", 8 << 20))
    assert fit(settings, 1000, 10) == fit(settings, 1000, 10, available_bytes=10**9)
    sizes = fit(settings, 1000, 10)
    assert (sizes.host_blocks, sizes.warnings) == ((100,), ())
    assert 0.7 * (8 << 20) <= sizes.disk_blocks * 8192 <= 8 << 20
    assert fit(settings, 4097, 10).host_blocks == (50,)


def test_more_than_seven_tenths_of_free_memory_is_clipped_with_one_warning() -> None:
    settings = TierSettings((HostSettings("a", 60 * 4096), HostSettings("b", None, 40)))
    sizes = fit(settings, 4096, 5, available_bytes=100 * 4096)
    assert sizes.host_blocks == (42, 28) and len(sizes.warnings) == 1 and "70%" in sizes.warnings[0]
    assert fit(settings, 4096, 5, available_bytes=200 * 4096).host_blocks == (60, 40)
    assert fit(settings, 4096, 5, available_bytes=None).host_blocks == (60, 40)


def test_a_host_tier_not_larger_than_the_device_cannot_help() -> None:
    host = (HostSettings("host", 10 * 4096),)
    (warning,) = fit(TierSettings(host), 4096, 10).warnings
    assert "10 blocks" in warning and "cannot help" in warning
    assert fit(TierSettings(host), 4096, 9).warnings == ()
    assert fit(TierSettings(host, DiskSettings("/kv", 8 << 20)), 4096, 10).warnings == ()


@pytest.mark.parametrize(
    ("settings", "available", "named"),
    [
        (TierSettings((HostSettings("host", 4095),)), None, "host"),
        (TierSettings((HostSettings("host", 8192),)), 1000, "clipping"),
        (TierSettings((HostSettings("host", 8192),), DiskSettings("/kv", 1000)), None, "disk"),
    ],
)
def test_a_tier_that_holds_no_block(settings: TierSettings, available: int | None, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        fit(settings, 1000, 0, available)


def test_the_connector_is_built_from_them() -> None:
    settings = TierSettings(
        (HostSettings("a", 10 * 4096), HostSettings("b", 20 * 4096)), DiskSettings("/kv", 8 << 20, None, 1)
    )
    sizes = fit(settings, 1000, 1)
    tiers = build_tiers(settings, sizes, LRU(), 1000)
    assert isinstance(tiers.connector, MultiConnector) and tiers.num_slots == 30
    assert [(report.tier, report.num_blocks) for report in tiers.connector.report()] == [
        ("a:host", 10),
        ("b:host", 20),
        ("disk", sizes.disk_blocks),
    ]
    assert tiers.on_disk is not None and tiers.on_disk.restore([(b"k", b"", "s")]) == ()
    assert tiers.connector.blocks_of([b"k"])["disk"] == 1
    one = tiers_of(offloading_size="1")
    assert one is not None
    alone = build_tiers(one, fit(one, 1 << 20, 1), LRU(), 1 << 20)
    assert isinstance(alone.connector, TieredConnector) and alone.on_disk is None and alone.num_slots == 1024
