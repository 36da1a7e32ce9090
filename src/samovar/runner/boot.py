"""From a configuration to a runner, a core and what the front end must know: everything "auto" becomes a value here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import logging
from pathlib import Path
import time

import msgspec
import torch

from samovar.base.errors import ConfigError
from samovar.core.config import EngineConfig
from samovar.core.engine import Engine
from samovar.core.ports import Connector, EngineInfo
from samovar.core.replay import Recorder
from samovar.kernels.cpu.native_library import native_library
from samovar.kv.settings import TierSettings
from samovar.models.batch import KVCache
from samovar.models.checkpoint import Checkpoint
from samovar.models.locate import locate
from samovar.policy.retention import RetentionPolicy
from samovar.runner.call_log import CallLog
from samovar.runner.compute import Compute, resolve_compute
from samovar.runner.config import POLICIES, EngineProcessConfig
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
from samovar.runner.retention import make_policy
from samovar.runner.settings import settings_of
from samovar.runner.step_log import StepLog
from samovar.runner.tiers import Device, Tiers, check_sizes, check_tiers, make_tiers
from samovar.text.checkpoint import load_text
from samovar.text.grammar.compiler import GrammarCompiler
from samovar.text.grammar.vocabulary import build_vocabulary

log = logging.getLogger(__name__)

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Booted:
    """Owned by whoever booted it: the threads of runner and tiers, the disk and the logs live until `close`."""

    engine: Engine | Recorder
    runner: LocalRunner
    info: EngineInfo
    call_log: CallLog | None = None
    tiers: Tiers | None = None
    step_log: StepLog | None = None

    def close(self, timeout_s: float) -> None:
        self.runner.close(timeout_s)
        if self.tiers is not None:
            self.tiers.close()
        if self.call_log is not None:
            self.call_log.close()
        if self.step_log is not None:
            self.step_log.close()


@dataclass(frozen=True, slots=True)
class _Budgets:
    step_tokens: int
    mixed_tokens: int
    """Prefill tokens of a step that also decodes; 0: no limit of their own."""
    rate: float | None
    """Prefill tokens per second, None when nothing asked for it."""


def boot(config: EngineProcessConfig, report: Report, on_done: Callable[[], None]) -> Booted:
    """Loads, measures, allocates. `report` gets a line per stage; `on_done` goes to the runner. Raises ConfigError."""
    below = _check(config)
    checkpoint, compute, loaded = _load(config, below, report)
    spec = checkpoint.spec
    capacity = resolve_capacity(config, spec, compute.kv_dtype, available_memory_bytes())
    budgets = _budgets(config, compute, loaded, report)
    threshold, unfit = resolve_threshold(config, budgets.step_tokens)
    _say((), (*capacity.warnings, *unfit))
    core = _engine_config(config, capacity, budgets, threshold)
    folder = Path(config.cache_dir) / "monokernel"
    max_rows = mono_rows(loaded, checkpoint, compute, config.monokernel, config.block_size, folder)
    report(f"mono decode: {f'up to {max_rows} rows' if max_rows else 'off'}")
    cache = _allocate(loaded, capacity, config.block_size)
    loaded = with_mono(loaded, cache, max_rows)
    call_log = CallLog(Path(config.record_path)) if config.record_path is not None else None
    step_log = StepLog(Path(config.step_log)) if config.step_log is not None else None
    policy = make_policy(config.retention_policy, capacity.num_blocks, config.retention_ttl_s)
    namespace = kv_namespace(checkpoint.fingerprint(), compute.kv_kind, config.block_size)
    block_s = config.block_size / budgets.rate if budgets.rate else None
    device = Device(cache, capacity.num_blocks, namespace, block_s)
    tiers = _tiers(below, device, policy, capacity, report, on_done)
    engine = _engine(config, core, policy, tiers.connector if tiers is not None else None, call_log)
    info = EngineInfo(
        max_model_len=capacity.max_model_len,
        block_tokens=config.block_size,
        num_blocks=capacity.num_blocks,
        namespace=namespace,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budgets.step_tokens,
        vocab_size=spec.vocab_size,
        dtype=compute.dtype,
        device=config.device,
        settings=settings_of(config, core, capacity, compute, tiers) | {"monokernel-max-rows": str(max_rows)},
    )
    runner = LocalRunner(
        loaded.model,
        cache,
        best=loaded.best,
        draw_many=loaded.draw_many,
        num_threads=config.num_threads,
        on_done=on_done,
        on_step=step_log.write if step_log is not None else None,
        mover=tiers.mover if tiers is not None else None,
        prefault=Prefault(cache),
        compiler=GrammarCompiler(lambda: build_vocabulary(load_text(checkpoint.path).tokenizer, spec.vocab_size)),
        debug=config.debug,
    )
    return Booted(engine, runner, info, call_log, tiers, step_log)


def _load(
    config: EngineProcessConfig, below: TierSettings | None, report: Report
) -> tuple[Checkpoint, Compute, EngineModel]:
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    report(f"locating {config.model}")
    checkpoint = locate(config.model, Path(config.cache_dir))
    spec = checkpoint.spec
    compute = resolve_compute(config, spec, checkpoint.stored_dtype(), native_library())
    _say(compute.notes, compute.warnings)
    if below is not None:
        check_sizes(below, spec.kv_bytes_per_token_in(compute.kv_dtype) * config.block_size)
    report(f"loading {config.model} as {compute}")
    began = time.monotonic()
    # A probe may be longer than the context of a tiny model.
    loaded = load_engine_model(
        checkpoint, compute, max(config.max_model_len or spec.max_position_embeddings, LONGEST_PROBE_TOKENS)
    )
    report(f"loaded {spec.num_parameters() / 1e6:.0f}M parameters in {time.monotonic() - began:.1f} s")
    return checkpoint, compute, loaded


def _check(config: EngineProcessConfig) -> TierSettings | None:
    """What can be known before the model is loaded, which may take minutes. The tiers that are wanted."""
    if config.retention_policy not in POLICIES:
        make_policy(config.retention_policy, 1)
    below = config.tiers()
    if below is not None:
        _say(below.notes, check_tiers(below))
    return below


def _tiers(
    below: TierSettings | None,
    device: Device,
    policy: RetentionPolicy,
    capacity: Capacity,
    report: Report,
    on_done: Callable[[], None],
) -> Tiers | None:
    if below is None:
        return None
    free = available_memory_bytes()
    # Of the device's pool nothing is written yet.
    left = None if free is None else max(0, free - capacity.kv_bytes)
    tiers = make_tiers(below, device, policy, left, report, on_done)
    report(f"host tier: {sum(tiers.sizes.host_blocks):,} blocks, which take memory as they fill")
    _say((), tiers.sizes.warnings)
    return tiers


def _say(notes: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    for note in notes:
        log.info("%s", note)
    for warning in warnings:
        log.warning("%s", warning)


def _budgets(config: EngineProcessConfig, compute: Compute, loaded: EngineModel, report: Report) -> _Budgets:
    most, mixed = config.max_num_batched_tokens, config.max_num_mixed_prefill_tokens
    if most is not None and (mixed is not None or compute.isa is None):
        return _Budgets(most, mixed or 0, None)
    scratch = loaded.new_cache(probe_blocks(config.block_size), config.block_size)
    rate = measure_prefill_rate(loaded.model, scratch)
    most = most or step_tokens(rate, config.block_size)
    if mixed is None:
        # Short steps cost little only where a step is one native call per op.
        mixed = 0 if compute.isa is None else step_tokens(rate, config.block_size, MIXED_STEP_TARGET_S)
    mixed_text = f", {mixed} of prefill beside decodes" if mixed else ""
    report(f"prefills {rate:.0f} tokens/s: steps of up to {most} tokens{mixed_text}")
    return _Budgets(most, mixed, rate)


def _engine_config(config: EngineProcessConfig, capacity: Capacity, budgets: _Budgets, threshold: int) -> EngineConfig:
    return EngineConfig(
        num_blocks=capacity.num_blocks,
        block_tokens=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budgets.step_tokens,
        max_num_mixed_prefill_tokens=budgets.mixed_tokens,
        max_model_len=capacity.max_model_len,
        depth=config.depth,
        long_prefill_token_threshold=threshold,
        prefill_schedule_interval=config.prefill_schedule_interval,
        max_num_queued_reqs=config.max_num_queued_reqs,
        max_num_queued_tokens=config.max_num_queued_tokens,
        max_num_queued_reqs_per_tenant=config.max_num_queued_reqs_per_tenant,
        max_num_queued_tokens_per_tenant=config.max_num_queued_tokens_per_tenant,
        enable_prefix_caching=config.enable_prefix_caching,
        kv_verify=config.kv_verify,
        block_bytes=capacity.kv_bytes // capacity.num_blocks,
    )


def _engine(
    config: EngineProcessConfig,
    core: EngineConfig,
    policy: RetentionPolicy,
    connector: Connector | None,
    call_log: CallLog | None,
) -> Engine | Recorder:
    if call_log is None:
        return Engine(core, policy, connector)
    recorder = Recorder(core, policy, connector, sink=call_log.write)
    # By the name that it can be made from again, which need not be what it calls itself.
    call_log.write(
        msgspec.structs.replace(recorder.header, policy=config.retention_policy, retention_ttl_s=config.retention_ttl_s)
    )
    return recorder


def _allocate(loaded: EngineModel, capacity: Capacity, block_size: int) -> KVCache:
    try:
        return loaded.new_cache(capacity.num_blocks, block_size)
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"the KV cache of {capacity.kv_bytes} bytes ({capacity.num_blocks} blocks) cannot be allocated: {error}",
            param="kv_cache_memory_bytes",
        ) from error
