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
from samovar.kernels.cpu.native_library import TORCH_OPS, native_library
from samovar.models.batch import KVCache
from samovar.models.locate import locate
from samovar.policy.lru import LRU
from samovar.policy.retention import RetentionPolicy
from samovar.runner.call_log import CallLog
from samovar.runner.compute import Compute, resolve_compute
from samovar.runner.config import EngineProcessConfig
from samovar.runner.engine_model import EngineModel, load_engine_model, mono_rows, with_mono
from samovar.runner.local import LocalRunner
from samovar.runner.memory import available_memory_bytes
from samovar.runner.prefault import Prefault
from samovar.runner.profile import (
    LONGEST_PROBE_TOKENS,
    MIXED_STEP_TARGET_S,
    measure_prefill_rate,
    probe_blocks,
    step_tokens,
)
from samovar.runner.resolve import Capacity, kv_namespace, resolve_capacity, resolve_threshold
from samovar.text.checkpoint import load_text
from samovar.text.grammar.compiler import GrammarCompiler
from samovar.text.grammar.vocabulary import build_vocabulary

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
    spec = checkpoint.spec
    compute = resolve_compute(config, spec, checkpoint.stored_dtype(), native_library())
    _say(compute.notes, compute.warnings)
    report(f"loading {config.model} as {compute}")
    began = time.monotonic()
    # A probe may be longer than the context of a tiny model.
    loaded = load_engine_model(
        checkpoint, compute, max(config.max_model_len or spec.max_position_embeddings, LONGEST_PROBE_TOKENS)
    )
    report(f"loaded {spec.num_parameters() / 1e6:.0f}M parameters in {time.monotonic() - began:.1f} s")
    capacity = resolve_capacity(config, spec, compute.kv_dtype, available_memory_bytes())
    budget, mixed = _budgets(config, compute, loaded, report)
    threshold, unfit = resolve_threshold(config, budget)
    _say((), (*capacity.warnings, *unfit))
    engine_config = _engine_config(config, capacity, budget, mixed, threshold)
    folder = Path(config.cache_dir) / "monokernel"
    max_rows = mono_rows(loaded, checkpoint, compute, config.monokernel, config.block_size, folder)
    report(f"mono decode: {f'up to {max_rows} rows' if max_rows else 'off'}")
    cache = _allocate(loaded, capacity, config.block_size)
    loaded = with_mono(loaded, cache, max_rows)
    call_log = CallLog(Path(config.record_path)) if config.record_path is not None else None
    engine = _engine(engine_config, _policy(config), call_log)
    info = EngineInfo(
        max_model_len=capacity.max_model_len,
        block_tokens=config.block_size,
        num_blocks=capacity.num_blocks,
        namespace=kv_namespace(checkpoint.fingerprint(), compute.kv_kind, config.block_size),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budget,
        vocab_size=spec.vocab_size,
        dtype=compute.dtype,
        device=config.device,
        settings=_settings(config, engine_config, capacity, compute) | {"monokernel-max-rows": str(max_rows)},
    )
    runner = LocalRunner(
        loaded.model,
        cache,
        best=loaded.best,
        draw_many=loaded.draw_many,
        num_threads=config.num_threads,
        on_done=on_done,
        prefault=Prefault(cache),
        compiler=GrammarCompiler(lambda: build_vocabulary(load_text(checkpoint.path).tokenizer, spec.vocab_size)),
        debug=config.debug,
    )
    return Booted(engine, runner, info, call_log)


def _say(notes: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    for note in notes:
        log.info("%s", note)
    for warning in warnings:
        log.warning("%s", warning)


def _budgets(config: EngineProcessConfig, compute: Compute, loaded: EngineModel, report: Report) -> tuple[int, int]:
    """Tokens of a step, and prefill tokens of a step that also decodes (0: no limit of their own)."""
    most, mixed = config.max_num_batched_tokens, config.max_num_mixed_prefill_tokens
    if most is not None and (mixed is not None or compute.isa is None):
        return most, mixed or 0
    scratch = loaded.new_cache(probe_blocks(config.block_size), config.block_size)
    rate = measure_prefill_rate(loaded.model, scratch)
    most = most or step_tokens(rate, config.block_size)
    if mixed is None:
        # Short steps cost little only where a step is one native call per op.
        mixed = 0 if compute.isa is None else step_tokens(rate, config.block_size, MIXED_STEP_TARGET_S)
    mixed_text = f", {mixed} of prefill beside decodes" if mixed else ""
    report(f"prefills {rate:.0f} tokens/s: steps of up to {most} tokens{mixed_text}")
    return most, mixed


def _engine_config(
    config: EngineProcessConfig, capacity: Capacity, budget: int, mixed: int, threshold: int
) -> EngineConfig:
    return EngineConfig(
        num_blocks=capacity.num_blocks,
        block_tokens=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budget,
        max_num_mixed_prefill_tokens=mixed,
        max_model_len=capacity.max_model_len,
        depth=config.depth,
        long_prefill_token_threshold=threshold,
        prefill_schedule_interval=config.prefill_schedule_interval,
        max_num_queued_reqs=config.max_num_queued_reqs,
        max_num_queued_tokens=config.max_num_queued_tokens,
        max_num_queued_reqs_per_tenant=config.max_num_queued_reqs_per_tenant,
        max_num_queued_tokens_per_tenant=config.max_num_queued_tokens_per_tenant,
        enable_prefix_caching=config.enable_prefix_caching,
    )


def _engine(config: EngineConfig, policy: RetentionPolicy, call_log: CallLog | None) -> Engine | Recorder:
    if call_log is None:
        return Engine(config, policy)
    recorder = Recorder(config, policy, sink=call_log.write)
    call_log.write(recorder.header)
    return recorder


def _allocate(loaded: EngineModel, capacity: Capacity, block_size: int) -> KVCache:
    try:
        return loaded.new_cache(capacity.num_blocks, block_size)
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"the KV cache of {capacity.kv_bytes} bytes ({capacity.num_blocks} blocks) cannot be allocated: {error}",
            param="kv_cache_memory_bytes",
        ) from error


def _policy(config: EngineProcessConfig) -> RetentionPolicy:
    return {"lru": LRU}[config.retention_policy]()


def _settings(config: EngineProcessConfig, core: EngineConfig, capacity: Capacity, compute: Compute) -> dict[str, str]:
    """Every option by its flag name, with what "auto" became. Without paths: whoever may read metrics sees these."""
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
    }
    return {name.replace("_", "-"): "" if value is None else str(value) for name, value in resolved.items()}
