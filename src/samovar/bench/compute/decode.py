"""`samovar bench decode`: one step of decoding rows by the mono program, by the normal path and by PyTorch's operators,
in turn, beside the least time the machine allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from samovar.base.errors import ConfigError
from samovar.bench.compute.bounds import MachineLimits, decode_work
from samovar.bench.compute.figures import StepFigure, step_figure
from samovar.bench.compute.limits import measure_limits
from samovar.bench.compute.setting import ComputeOptions, Setting, fill, find_setting, model_size, random_ids
from samovar.bench.compute.timing import Run, alternate
from samovar.kernels.cpu.native_ops import native_ops
from samovar.kernels.rows import make_rows
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import load_model, load_packed_model, new_cache, new_tiled_cache
from samovar.models.mono import MAX_ROWS, MonoLlama
from samovar.runner.memory import available_memory_bytes
from samovar.spec.model import ModelSpec

MONO, NORMAL, TORCH = "mono", "normal", "torch"
KV_BYTES_OF_ELEMENT = 2
SHARE_OF_MEMORY = 0.8

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    compute: ComputeOptions
    rows: tuple[int, ...]
    depths: tuple[int, ...]
    """Tokens that each row has before the step."""
    with_torch: bool = True

    def __post_init__(self) -> None:
        for rows in self.rows:
            if not 1 <= rows <= MAX_ROWS:
                raise ConfigError(f"--rows takes 1 to {MAX_ROWS}, got {rows}", param="rows")
        for depth in self.depths:
            if depth < 0:
                raise ConfigError(f"--depth must be at least 0, got {depth}", param="depth")


@dataclass(frozen=True, slots=True)
class StepRun:
    setting: Setting
    limits: MachineLimits
    figures: list[StepFigure]


def run_decode(options: DecodeOptions, progress: Progress) -> StepRun:
    """Raises ConfigError for what does not fit the model or the memory, before anything is measured."""
    setting = find_setting(options.compute)
    block_tokens = options.compute.block_tokens
    num_blocks = needed_blocks(options, setting.spec, available_memory_bytes())
    progress("measuring the machine")
    limits = measure_limits(setting.library, setting.isa, setting.threads)
    progress("loading the model")
    ops = native_ops(setting.isa, setting.threads)
    model = load_packed_model(setting.checkpoint, ops, setting.compute.quantization, max(options.depths) + 1)
    cache = new_tiled_cache(setting.spec, num_blocks, block_tokens)
    fill(cache, options.compute.seed)
    mono = MonoLlama(model, cache)
    paths: dict[str, Callable[[ForwardBatch], Run]] = {
        MONO: lambda batch: partial(mono.forward, batch, cache),
        NORMAL: lambda batch: partial(model.forward, batch, cache),
    }
    if options.with_torch:
        eager, plain = (
            load_model(setting.checkpoint, "bfloat16"),
            new_cache(setting.spec, num_blocks, block_tokens, "bfloat16"),
        )
        fill(plain, options.compute.seed)
        paths[TORCH] = lambda batch: partial(eager.forward, batch, plain)
    size, figures = model_size(model), []
    for depth in options.depths:
        for rows in options.rows:
            progress(f"{rows} rows at depth {depth}")
            batch = decode_batch(setting.spec, rows, depth, cache, options.compute.seed)
            timings = alternate([path(batch) for path in paths.values()], options.compute.repeats)
            by_path = dict(zip(paths, timings, strict=True))
            figures.append(step_figure(rows, depth, by_path, decode_work(size, rows, depth), limits))
    return StepRun(setting, limits, figures)


def needed_blocks(options: DecodeOptions, spec: ModelSpec, free_bytes: int | None) -> int:
    """Every row has blocks of its own: shared ones would be read from a cache."""
    rows, depth, block_tokens = max(options.rows), max(options.depths), options.compute.block_tokens
    if depth >= spec.max_position_embeddings:
        raise ConfigError(
            f"--depth {depth}: the model's context is {spec.max_position_embeddings} tokens, one of them the step's",
            param="depth",
        )
    blocks = rows * -(-(depth + 1) // block_tokens)
    pools = 2 if options.with_torch else 1
    num_bytes = pools * blocks * block_tokens * spec.kv_bytes_per_token(KV_BYTES_OF_ELEMENT)
    if free_bytes is not None and num_bytes > SHARE_OF_MEMORY * free_bytes:
        also = " (--no-torch halves it)" if options.with_torch else ""
        raise ConfigError(
            f"--rows {rows} at --depth {depth} needs {num_bytes / 1e9:.1f} GB of KV{also};"
            f" {free_bytes / 1e9:.1f} GB are free",
            param="depth",
        )
    return blocks


def decode_batch(spec: ModelSpec, rows: int, depth: int, cache: KVCache, seed: int) -> ForwardBatch:
    """One new token per row, each behind `depth` others in blocks of its own."""
    block_tokens = cache.block_tokens
    per_row = -(-(depth + 1) // block_tokens)
    tables = [np.arange(row * per_row, (row + 1) * per_row, dtype=np.int64) for row in range(rows)]
    block, offset = divmod(depth, block_tokens)
    return ForwardBatch(
        token_ids=random_ids(spec, rows, seed),
        positions=torch.full((rows,), depth, dtype=torch.int64),
        slots=torch.tensor([int(table[block]) * block_tokens + offset for table in tables], dtype=torch.int64),
        rows=make_rows([1] * rows, [depth] * rows, tables, block_tokens),
        logit_rows=torch.arange(rows, dtype=torch.int64),
    )
