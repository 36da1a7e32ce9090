"""`--kv-transfer-config`, as vLLM's users write it, and the tiers that it asks for.

    '{"kv_connector": "UMBPStoreConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {"mode": "embedded", "total_capacity_bytes": 68719476736}}'

| connector            | extra configuration |
|----------------------|---------------------|
| `UMBPStoreConnector` | `mode` ("embedded"), `total_capacity_bytes`: of the host tier; `load_async` |
| `OffloadingConnector`| `cpu_bytes_to_use`, or `num_cpu_blocks`: of the host tier |
| `MultiConnector`     | `connectors`: a list of the above, each an object like the outer one |

The first two also take a disk: `disk_path`, `disk_capacity_bytes`, and `disk_write_bytes_per_s` to spare it. Sizes are
bytes, or text with a unit ("64GiB"). Fields that vLLM has and that mean nothing here are ignored with a warning; any
other field is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from samovar.kv.json_object import JsonObject

FLAG = "--kv-transfer-config"
CONNECTORS = ("UMBPStoreConnector", "OffloadingConnector", "MultiConnector")
ROLES = ("kv_both",)
MODES = ("embedded",)
LoadFailurePolicy = Literal["recompute", "fail"]
LOAD_FAILURE_POLICIES: tuple[LoadFailurePolicy, ...] = ("recompute", "fail")

_OTHERS = (
    "engine_id", "kv_buffer_device", "kv_buffer_size", "kv_rank", "kv_parallel_size", "kv_ip", "kv_port",
    "kv_connector_module_path", "enable_permute_local_kv",
)  # fmt: skip
"""Of vLLM's own fields."""
_OTHERS_OF_UMBP = (
    "key_namespace", "enable_lookup", "lookup_async", "lookup_workers", "save_decode_cache", "enable_partial_hash_hits",
    "kv_event_max_objects", "lookup_dir", "num_workers", "timeout_ms", "dram_use_shared_memory", "dram_shm_name",
    "dram_high_watermark", "dram_low_watermark", "dram_use_hugepages", "dram_hugepage_size", "dram_numa_node",
    "dram_prefault",
)  # fmt: skip
_OTHERS_OF_OFFLOADING = (
    "spec_name", "spec_module_path", "block_size", "blocks_per_chunk", "eviction_policy", "cache_policy_module_path",
    "store_threshold", "max_tracker_size", "offload_prompt_only", "sync_load_budget_bytes", "self_describing_kv_events",
    "canonical_layout", "tier_poll_interval_s", "backpressure",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KVTransferConfig:
    """Field names are vLLM's where vLLM has them. `parse` raises ConfigError."""

    kv_connector: str
    kv_role: str = "kv_both"
    kv_load_failure_policy: LoadFailurePolicy = "recompute"
    load_async: bool = True
    host_bytes: int | None = None
    host_blocks: int | None = None
    """The host tier's size, if not in bytes."""
    disk_path: str | None = None
    disk_bytes: int | None = None
    disk_write_bytes_per_s: int | None = None
    connectors: tuple[KVTransferConfig, ...] = ()
    """Of a MultiConnector."""
    warnings: tuple[str, ...] = ()
    """Its own and its connectors'."""

    @staticmethod
    def parse(text: str) -> KVTransferConfig:
        return _read(JsonObject.parse(text, FLAG), CONNECTORS, None)


def _read(
    fields: JsonObject, connectors: tuple[str, ...], failure_policy: LoadFailurePolicy | None
) -> KVTransferConfig:
    """`failure_policy`: that of the connector around it, which its parts cannot change."""
    connector = fields.choice("kv_connector", connectors)
    role = fields.choice("kv_role", ROLES, "kv_both")
    allowed = LOAD_FAILURE_POLICIES if failure_policy is None else (failure_policy,)
    policy = cast(LoadFailurePolicy, fields.choice("kv_load_failure_policy", allowed, allowed[0]))
    extra = JsonObject.of(fields.take("kv_connector_extra_config") or {}, f"{fields.where}: kv_connector_extra_config")
    warnings = fields.without_meaning(_OTHERS)
    fields.end()
    if connector == "MultiConnector":
        return _read_many(extra, role, policy, warnings)
    return _read_one(extra, connector, role, policy, warnings)


def _read_many(extra: JsonObject, role: str, policy: LoadFailurePolicy, warnings: tuple[str, ...]) -> KVTransferConfig:
    parts = tuple(
        _read(JsonObject.of(entry, f"{extra.where}: connectors[{i}]"), CONNECTORS[:-1], policy)
        for i, entry in enumerate(extra.list_of("connectors"))
    )
    extra.end()
    for i, part in enumerate(parts):
        if part.disk_path and any(other.disk_path for other in parts[:i]):
            raise extra.error("connectors", f"[{i}] has a disk_path, and so has one before it; one disk is the limit")
    warnings += tuple(warning for part in parts for warning in part.warnings)
    load_async = all(part.load_async for part in parts)
    return KVTransferConfig("MultiConnector", role, policy, load_async, connectors=parts, warnings=warnings)


def _read_one(
    extra: JsonObject, connector: str, role: str, policy: LoadFailurePolicy, warnings: tuple[str, ...]
) -> KVTransferConfig:
    host_blocks, load_async = None, True
    if connector == "UMBPStoreConnector":
        extra.choice("mode", MODES, "embedded")
        size_field = "total_capacity_bytes"
        host_bytes = extra.num_bytes(size_field)
        load_async = extra.flag("load_async", True)
        warnings += extra.without_meaning(_OTHERS_OF_UMBP)
    else:
        size_field = "cpu_bytes_to_use"
        host_bytes, host_blocks = extra.num_bytes(size_field), extra.count("num_cpu_blocks")
        warnings += extra.without_meaning(_OTHERS_OF_OFFLOADING)
        if host_bytes is not None and host_blocks is not None:
            raise extra.error("num_cpu_blocks", f"and {size_field} are both given; one of them is the size")
    disk_path, disk_bytes = extra.text("disk_path"), extra.num_bytes("disk_capacity_bytes")
    disk_rate = extra.num_bytes("disk_write_bytes_per_s")
    extra.end()
    if disk_path is not None and disk_path.startswith("~"):
        raise extra.error("disk_path", f"is {disk_path!r}; nothing expands the ~ here, give the whole path")
    if (disk_path is None) is not (disk_bytes is None):
        absent, given = (
            ("disk_path", "disk_capacity_bytes") if disk_path is None else ("disk_capacity_bytes", "disk_path")
        )
        raise extra.error(absent, f"is missing; {given} has no effect without it")
    if disk_rate is not None and disk_path is None:
        raise extra.error("disk_write_bytes_per_s", "has no effect without disk_path")
    if host_bytes is None and host_blocks is None and disk_path is None:
        raise extra.error(size_field, "is missing; it is the size of the host tier in bytes")
    return KVTransferConfig(
        connector, role, policy, load_async, host_bytes, host_blocks, disk_path, disk_bytes, disk_rate, (), warnings
    )
