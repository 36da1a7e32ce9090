"""Settles what a model is computed with: native kernels or PyTorch's operators, in which numbers, on which threads."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.kernels.cpu.native_library import (
    AUTO,
    HOW_TO_INSTALL,
    TORCH_OPS,
    NativeLibrary,
    available_cores,
    why_there_is_none,
)
from samovar.models.packed_limits import packed_misfit
from samovar.runner.config import EngineProcessConfig
from samovar.runner.resolve import resolve_dtype
from samovar.spec.dtype import QUANTIZATIONS, DTypeName, KVDTypeName, Quantization
from samovar.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Compute:
    dtype: DTypeName
    """Of activations where they are rounded, and of plain weights."""
    quantization: Quantization
    isa: str | None = None
    """Of the native kernels; None: PyTorch's operators."""
    threads: int | None = None
    """Of the native kernels."""
    int8_kv: bool = False
    notes: tuple[str, ...] = ()
    """For the log."""
    warnings: tuple[str, ...] = ()

    @property
    def kv_dtype(self) -> KVDTypeName:
        return "int8" if self.int8_kv else self.dtype

    @property
    def kv_kind(self) -> str:
        """What makes KV of equal tokens differ. The instruction set does: what a hit finds must have the bits that
        computing it again would give."""
        if self.isa is None:
            return self.dtype
        kind = f"{self.dtype} packed {self.quantization} {self.isa}"
        return f"{kind}, int8 KV" if self.int8_kv else kind

    def __str__(self) -> str:
        if self.isa is None:
            return f"{self.dtype} (PyTorch)"
        kv = ", int8 KV" if self.int8_kv else ""
        return f"{self.dtype}, quantization {self.quantization}{kv} (native {self.isa}, {self.threads} threads)"


def resolve_compute(
    config: EngineProcessConfig, spec: ModelSpec, stored: DTypeName | None, library: NativeLibrary | None
) -> Compute:
    """`stored`: `Checkpoint.stored_dtype`. Raises ConfigError for what was asked for and cannot be had."""
    notes: list[str] = []
    warnings: list[str] = []
    if config.dtype == "float32":
        reason = "--dtype float32 is computed with PyTorch"
    elif config.isa == TORCH_OPS:
        reason = f"SAMOVAR_ISA is {TORCH_OPS}"
    elif (misfit := packed_misfit(spec, config.block_size)) is not None:
        reason = f"no native kernels for this model: {misfit}"
        notes.append(reason)
    elif library is None:
        reason = f"this installation has no native kernels ({why_there_is_none()})"
        warnings.append(f"{reason}; PyTorch's operators are several times slower: {HOW_TO_INSTALL}")
    else:
        threads = config.num_threads or available_cores()
        quantization = next(known for known in QUANTIZATIONS if known == config.quantization)
        isa = library.choose(config.isa)
        return Compute("bfloat16", quantization, isa, threads, int8_kv=config.kv_cache_dtype == "int8")
    _refuse_what_is_native(config, library, reason)
    dtype = resolve_dtype(config, stored)
    if config.kv_cache_dtype not in ("auto", dtype):
        raise ConfigError(
            f"--kv-cache-dtype {config.kv_cache_dtype} needs native kernels beside {dtype} weights, but {reason}",
            param="kv_cache_dtype",
        )
    return Compute(dtype, "none", notes=tuple(notes), warnings=tuple(warnings))


def _refuse_what_is_native(config: EngineProcessConfig, library: NativeLibrary | None, reason: str) -> None:
    if config.quantization == "int8":
        raise ConfigError(f"--quantization int8 needs native kernels, but {reason}", param="quantization")
    if config.isa in (AUTO, TORCH_OPS):
        return
    if library is None:
        raise ConfigError(
            f"SAMOVAR_ISA is {config.isa!r}, but this installation has no native kernels: {HOW_TO_INSTALL}",
            param="isa",
        )
    library.choose(config.isa)
