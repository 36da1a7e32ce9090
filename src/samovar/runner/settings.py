"""Every option of a running engine by its flag name, with what "auto" became. Without paths: whoever may read metrics
sees these."""

from __future__ import annotations

from dataclasses import fields

import torch

from samovar.core.config import EngineConfig
from samovar.kernels.cpu.native_library import TORCH_OPS
from samovar.runner.compute import Compute
from samovar.runner.config import EngineProcessConfig
from samovar.runner.resolve import Capacity
from samovar.runner.tiers import Tiers

PRIVATE_SETTINGS = ("cache_dir", "record_path", "step_log", "model", "kv_disk_path", "kv_transfer_config")
"""Paths of this machine; `model` may be one, and the connector's JSON may hold one."""


def settings_of(
    config: EngineProcessConfig, core: EngineConfig, capacity: Capacity, compute: Compute, tiers: Tiers | None
) -> dict[str, str]:
    names = [field.name for field in fields(config) if field.name not in PRIVATE_SETTINGS]
    resolved: dict[str, object] = {name: getattr(config, name) for name in names}
    resolved |= {
        "dtype": compute.dtype,
        "quantization": compute.quantization,
        "kv_cache_dtype": compute.kv_dtype,
        "isa": compute.isa or TORCH_OPS,
        "num_gpu_blocks": capacity.num_blocks,
        "kv_cache_memory_bytes": capacity.kv_bytes,
        "max_model_len": capacity.max_model_len,
        "max_num_batched_tokens": core.max_num_batched_tokens,
        "max_num_mixed_prefill_tokens": core.max_num_mixed_prefill_tokens,
        "long_prefill_token_threshold": core.long_prefill_token_threshold,
        "num_threads": compute.threads or torch.get_num_threads(),
        "kv_host_blocks": 0 if tiers is None else sum(tiers.sizes.host_blocks),
        "kv_disk_blocks": 0 if tiers is None else tiers.sizes.disk_blocks,
    }
    return {name.replace("_", "-"): "" if value is None else str(value) for name, value in resolved.items()}
