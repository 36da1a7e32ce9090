"""From a configuration to a runner, a core and what the front end must know: everything "auto" becomes a value here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
import logging
from pathlib import Path
import time

import torch

from samovar.base.errors import ConfigError
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.ports import EngineInfo
from samovar.core.replay import Recorder
from samovar.models.batch import KVCache
from samovar.models.llama import LlamaModel
from samovar.models.load import load_model, new_cache
from samovar.models.locate import locate
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from samovar.runner.call_log import CallLog
from samovar.runner.config import EngineProcessConfig
from samovar.runner.local import LocalRunner
from samovar.runner.memory import available_memory_bytes
from samovar.runner.profile import measure_prefill_rate, probe_blocks, step_tokens
from samovar.runner.resolve import Capacity, kv_namespace, resolve_capacity, resolve_dtype, resolve_threshold
from samovar.spec.dtype import DTypeName

log = logging.getLogger(__name__)

Report = Callable[[str], None]

PRIVATE_SETTINGS = ("cache_dir", "record_path", "model")
"""Paths of this machine; `model` may be one."""


@dataclass(frozen=True, slots=True)
class Booted:
    """Owned by whoever booted it: the runner's thread and the call log live until `close`."""

    engine: Engine | Recorder
    runner: LocalRunner
    info: EngineInfo
    call_log: CallLog | None = None

    def close(self, timeout_s: float) -> None:
        self.runner.close(timeout_s)
        if self.call_log is not None:
            self.call_log.close()


def boot(config: EngineProcessConfig, report: Report, on_done: Callable[[], None]) -> Booted:
    """Loads, measures, allocates. `report` gets a line per stage; `on_done` goes to the runner. Raises ConfigError."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    report(f"locating {config.model}")
    checkpoint = locate(config.model, Path(config.cache_dir))
    dtype = resolve_dtype(config, checkpoint.stored_dtype())
    report(f"loading {config.model} as {dtype}")
    began = time.monotonic()
    model = load_model(checkpoint, dtype)
    report(f"loaded {model.spec.num_parameters() / 1e6:.0f}M parameters in {time.monotonic() - began:.1f} s")
    capacity = resolve_capacity(config, model.spec, dtype, available_memory_bytes())
    budget = _step_budget(config, model, dtype, report)
    threshold, unfit = resolve_threshold(config, budget)
    for warning in (*capacity.warnings, *unfit):
        log.warning("%s", warning)
    engine_config = _engine_config(config, capacity, budget, threshold)
    cache = _allocate(model, capacity, config.block_size, dtype)
    call_log = CallLog(Path(config.record_path)) if config.record_path is not None else None
    engine = _engine(engine_config, _policy(config), call_log)
    info = EngineInfo(
        max_model_len=capacity.max_model_len,
        block_tokens=config.block_size,
        num_blocks=capacity.num_blocks,
        namespace=kv_namespace(checkpoint.fingerprint(), dtype, config.block_size),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budget,
        vocab_size=model.spec.vocab_size,
        dtype=dtype,
        device=config.device,
        settings=_settings(config, engine_config, capacity, dtype),
    )
    runner = LocalRunner(model, cache, num_threads=config.num_threads, on_done=on_done, debug=config.debug)
    return Booted(engine, runner, info, call_log)


def _step_budget(config: EngineProcessConfig, model: LlamaModel, dtype: DTypeName, report: Report) -> int:
    if config.max_num_batched_tokens is not None:
        return config.max_num_batched_tokens
    scratch = new_cache(model.spec, probe_blocks(config.block_size), config.block_size, dtype)
    rate = measure_prefill_rate(model, scratch)
    budget = step_tokens(rate, config.block_size)
    report(f"prefills {rate:.0f} tokens/s: max_num_batched_tokens is {budget}")
    return budget


def _engine_config(config: EngineProcessConfig, capacity: Capacity, budget: int, threshold: int) -> EngineConfig:
    return EngineConfig(
        num_blocks=capacity.num_blocks,
        block_tokens=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=capacity.max_model_len,
        depth=config.depth,
        long_prefill_token_threshold=threshold,
        prefill_schedule_interval=config.prefill_schedule_interval,
        max_num_queued_reqs=config.max_num_queued_reqs,
        max_num_queued_tokens=config.max_num_queued_tokens,
        enable_prefix_caching=config.enable_prefix_caching,
    )


def _engine(config: EngineConfig, policy: RetentionPolicy, call_log: CallLog | None) -> Engine | Recorder:
    if call_log is None:
        return Engine(config, policy)
    recorder = Recorder(config, policy, sink=call_log.write)
    call_log.write(recorder.header)
    return recorder


def _allocate(model: LlamaModel, capacity: Capacity, block_size: int, dtype: DTypeName) -> KVCache:
    try:
        return new_cache(model.spec, capacity.num_blocks, block_size, dtype)
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"the KV cache of {capacity.kv_bytes} bytes ({capacity.num_blocks} blocks) cannot be allocated: {error}",
            param="kv_cache_memory_bytes",
        ) from error


def _policy(config: EngineProcessConfig) -> RetentionPolicy:
    return {"lru": LRU}[config.retention_policy]()


def _settings(config: EngineProcessConfig, core: EngineConfig, capacity: Capacity, dtype: DTypeName) -> dict[str, str]:
    """Every option by its flag name, with what "auto" became. Without paths: whoever may read metrics sees these."""
    names = [field.name for field in fields(config) if field.name not in PRIVATE_SETTINGS]
    resolved: dict[str, object] = {name: getattr(config, name) for name in names}
    resolved |= {
        "dtype": dtype,
        "num_gpu_blocks": capacity.num_blocks,
        "kv_cache_memory_bytes": capacity.kv_bytes,
        "max_model_len": capacity.max_model_len,
        "max_num_batched_tokens": core.max_num_batched_tokens,
        "long_prefill_token_threshold": core.long_prefill_token_threshold,
        "num_threads": torch.get_num_threads(),
    }
    return {name.replace("_", "-"): "" if value is None else str(value) for name, value in resolved.items()}
