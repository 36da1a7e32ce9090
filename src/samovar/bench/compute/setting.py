"""What every compute benchmark needs first: the model, and which native kernels run it on how many threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from samovar.base.errors import ConfigError
from samovar.bench.compute.bounds import MatrixSize, ModelSize
from samovar.kernels.cpu.native_library import AUTO, TORCH_OPS, NativeLibrary, native_library
from samovar.models.batch import KVCache
from samovar.models.checkpoint import Checkpoint
from samovar.models.locate import locate
from samovar.models.packed_llama import PackedLlama
from samovar.models.packing import PackedMatrix
from samovar.runner.compute import Compute, resolve_compute
from samovar.runner.config import EngineProcessConfig
from samovar.spec.model import ModelSpec

FEWEST_REPEATS = 1


@dataclass(frozen=True, slots=True)
class ComputeOptions:
    """As the command line gives them."""

    model: str
    cache_dir: str
    isa: str
    """"auto" or the name of an instruction set."""
    num_threads: int | None
    quantization: str = "auto"
    repeats: int = 9
    block_tokens: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < FEWEST_REPEATS:
            raise ConfigError(f"--repeats must be at least {FEWEST_REPEATS}, got {self.repeats}", param="repeats")


@dataclass(frozen=True, slots=True)
class Setting:
    checkpoint: Checkpoint
    compute: Compute
    library: NativeLibrary
    isa: str
    threads: int

    @property
    def spec(self) -> ModelSpec:
        return self.checkpoint.spec


def find_setting(options: ComputeOptions) -> Setting:
    """Raises ConfigError where native kernels cannot run the model: they are what is measured."""
    config = EngineProcessConfig(
        model=options.model,
        cache_dir=options.cache_dir,
        isa=options.isa,
        quantization=options.quantization,
        num_threads=options.num_threads,
        block_size=options.block_tokens,
    )
    checkpoint, library = locate(options.model, Path(options.cache_dir)), native_library()
    if library is not None and options.isa not in (AUTO, TORCH_OPS, *library.isa_levels):
        known = ", ".join(library.isa_levels)
        raise ConfigError(f"--isa must be {AUTO} or one of {known} on this machine, got {options.isa!r}", param="isa")
    compute = resolve_compute(config, checkpoint.spec, checkpoint.stored_dtype(), library)
    if library is None or compute.isa is None or compute.threads is None:
        reasons = "; ".join((*compute.notes, *compute.warnings)) or f"--isa is {options.isa}"
        raise ConfigError(f"this benchmark measures native kernels, and there are none to measure: {reasons}")
    return Setting(checkpoint, compute, library, compute.isa, compute.threads)


def model_size(model: PackedLlama) -> ModelSize:
    def size(matrix: PackedMatrix) -> MatrixSize:
        return MatrixSize(matrix.format, matrix.n, matrix.k, matrix.data.size)

    weights = model.weights
    layers = tuple((size(x.qkv), size(x.o), size(x.gate_up), size(x.down)) for x in weights.layers)
    return ModelSize(model.spec, layers, size(weights.lm_head))


def fill(cache: KVCache, seed: int) -> None:
    """Numbers in every slot: pages never written are all one page of zeros, which no cache ever misses."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*cache.keys, *cache.values):
        pattern = torch.randn(tensor.shape[1:], generator=generator)
        tensor.copy_(pattern.to(tensor.dtype).expand_as(tensor))


def random_ids(spec: ModelSpec, count: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, spec.vocab_size, count, dtype=np.int64))
