"""`samovar bench prefill`: a cold prompt in steps, from the first step's begin to the logits of its last token, by the
native kernels and by PyTorch's operators in turn, beside the least time the machine allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from samovar.base.errors import ConfigError
from samovar.bench.compute.bounds import chunks_of, prefill_work
from samovar.bench.compute.decode import NORMAL, TORCH, StepRun
from samovar.bench.compute.figures import step_figure
from samovar.bench.compute.limits import measure_limits
from samovar.bench.compute.setting import ComputeOptions, fill, find_setting, model_size, random_ids
from samovar.bench.compute.timing import Run, alternate
from samovar.kernels.cpu.native_ops import native_ops
from samovar.kernels.rows import make_rows
from samovar.models.batch import ForwardBatch, KVCache
from samovar.models.load import Model, load_model, load_packed_model, new_cache, new_tiled_cache
from samovar.runner.profile import LONGEST_PROBE_TOKENS, measure_prefill_rate, step_tokens
from samovar.spec.model import ModelSpec

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PrefillOptions:
    compute: ComputeOptions
    tokens: tuple[int, ...]
    """Lengths of prompts."""
    step_tokens: int | None = None
    """Of one step; None: what `samovar serve` would choose for the native kernels."""
    with_torch: bool = True

    def __post_init__(self) -> None:
        for tokens in self.tokens:
            if tokens < 1:
                raise ConfigError(f"--tokens must be at least 1, got {tokens}", param="tokens")
        if self.step_tokens is not None and self.step_tokens < 1:
            raise ConfigError(
                f"--max-num-batched-tokens must be at least 1, got {self.step_tokens}", param="max_num_batched_tokens"
            )


@dataclass(frozen=True, slots=True)
class PrefillRun:
    steps: StepRun
    step_tokens: int


def run_prefill(options: PrefillOptions, progress: Progress) -> PrefillRun:
    """Raises ConfigError for what does not fit the model, before anything is measured."""
    setting, longest = find_setting(options.compute), max(options.tokens)
    spec, block_tokens = setting.spec, options.compute.block_tokens
    if longest > spec.max_position_embeddings:
        raise ConfigError(
            f"--tokens {longest}: the model's context is {spec.max_position_embeddings} tokens", param="tokens"
        )
    progress("measuring the machine")
    limits = measure_limits(setting.library, setting.isa, setting.threads)
    progress("loading the model")
    num_blocks = -(-max(longest, LONGEST_PROBE_TOKENS) // block_tokens)
    ops = native_ops(setting.isa, setting.threads)
    positions = max(longest, LONGEST_PROBE_TOKENS)
    model = load_packed_model(setting.checkpoint, ops, setting.compute.quantization, positions)
    cache = new_tiled_cache(spec, num_blocks, block_tokens)
    fill(cache, options.compute.seed)
    step = options.step_tokens or step_tokens(measure_prefill_rate(model, cache), block_tokens)
    paths: dict[str, tuple[Model, KVCache]] = {NORMAL: (model, cache)}
    if options.with_torch:
        eager = load_model(setting.checkpoint, "bfloat16")
        paths[TORCH] = (eager, new_cache(spec, num_blocks, block_tokens, "bfloat16"))
    size, figures = model_size(model), []
    for tokens in options.tokens:
        progress(f"a prompt of {tokens} tokens in steps of {step}")
        batches = prompt_batches(spec, tokens, step, block_tokens, options.compute.seed)
        runs: list[Run] = [partial(_prompt, one, batches, its_cache) for one, its_cache in paths.values()]
        by_path = dict(zip(paths, alternate(runs, options.compute.repeats), strict=True))
        figures.append(step_figure(tokens, 0, by_path, prefill_work(size, chunks_of(tokens, step)), limits))
    return PrefillRun(StepRun(setting, limits, figures), step)


def prompt_batches(spec: ModelSpec, tokens: int, step: int, block_tokens: int, seed: int) -> list[ForwardBatch]:
    """Chunks of one prompt in blocks that lie side by side; only the last chunk's last token has logits."""
    ids, table = random_ids(spec, tokens, seed), np.arange(-(-tokens // block_tokens), dtype=np.int64)
    batches, start = [], 0
    for count in chunks_of(tokens, step):
        positions = torch.arange(start, start + count, dtype=torch.int64)
        last = [count - 1] if start + count == tokens else []
        batches.append(
            ForwardBatch(
                token_ids=ids[start : start + count],
                positions=positions,
                slots=positions.clone(),
                rows=make_rows([count], [start], [table], block_tokens),
                logit_rows=torch.tensor(last, dtype=torch.int64),
            )
        )
        start += count
    return batches


def _prompt(model: Model, batches: list[ForwardBatch], cache: KVCache) -> None:
    for batch in batches:
        model.forward(batch, cache)
