"""Loads a model for whatever computes it, with the cache and the argmax that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from samovar.base.errors import ConfigError
from samovar.kernels.packed_ops import PackedOps
from samovar.models.batch import KVCache
from samovar.models.checkpoint import Checkpoint
from samovar.models.load import Model, load_model, load_packed_model, new_cache, new_tiled_cache
from samovar.models.mono import MAX_ROWS, MonoLlama
from samovar.models.packed_llama import PackedLlama
from samovar.runner.compute import Compute
from samovar.runner.crossover import (
    crossover_key,
    load_crossover,
    measure_crossover,
    save_crossover,
    scratch_blocks,
)
from samovar.runner.native_draw import drawing
from samovar.runner.sampler import Best, DrawMany, best_of


@dataclass(frozen=True, slots=True)
class EngineModel:
    model: Model
    new_cache: Callable[[int, int], KVCache]
    """(num_blocks, block_tokens)"""
    best: Best
    draw_many: DrawMany | None = None


def load_engine_model(checkpoint: Checkpoint, compute: Compute, max_positions: int) -> EngineModel:
    """Raises CheckpointError or UnsupportedFeature, naming file and tensor."""
    spec = checkpoint.spec
    if compute.isa is None:
        model = load_model(checkpoint, compute.dtype)
        return EngineModel(model, lambda blocks, tokens: new_cache(spec, blocks, tokens, compute.dtype), best_of)
    packed = load_packed_model(checkpoint, _native(compute), compute.quantization, max_positions)
    draw_many = drawing(packed.ops.draw) if packed.ops.draw is not None else None
    return EngineModel(
        packed, lambda blocks, tokens: new_tiled_cache(spec, blocks, tokens, compute.kv_dtype), packed.argmax, draw_many
    )


def mono_rows(
    loaded: EngineModel, checkpoint: Checkpoint, compute: Compute, choice: str, block_tokens: int, folder: Path
) -> int:
    """Up to how many rows decode steps take mono decode, by `--monokernel`; 0: never. "auto" is measured once and then
    kept in `folder`. Raises ConfigError for "on" where there is no mono decode."""
    if compute.isa is None or not isinstance(loaded.model, PackedLlama):
        if choice == "on":
            raise ConfigError(
                "--monokernel on needs native kernels, which this model does not run on", param="monokernel"
            )
        return 0
    if choice != "auto":
        return MAX_ROWS if choice == "on" else 0
    assert compute.threads is not None
    key = crossover_key(checkpoint.fingerprint(), compute.kv_kind, compute.isa, compute.threads)
    rows = load_crossover(folder, key)
    if rows is None:
        rows = measure_crossover(loaded.model, loaded.new_cache(scratch_blocks(block_tokens), block_tokens))
        save_crossover(folder, key, rows)
    return rows


def with_mono(loaded: EngineModel, cache: KVCache, max_rows: int) -> EngineModel:
    """`max_rows`: of `mono_rows`. The model then runs on this cache alone."""
    if max_rows == 0:
        return loaded
    assert isinstance(loaded.model, PackedLlama)
    return replace(loaded, model=MonoLlama(loaded.model, cache, max_rows))


def _native(compute: Compute) -> PackedOps:
    # An optional dependency: the extension is there only where a compiler was.
    from samovar.kernels.cpu.native_ops import native_ops

    assert compute.isa is not None and compute.threads is not None
    return native_ops(compute.isa, compute.threads)
