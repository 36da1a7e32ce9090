"""Turns every "auto" that concerns memory and lengths into a number, once, and names what it comes from. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from samovar.base.errors import ConfigError
from samovar.base.keys import digest
from samovar.runner.config import EngineProcessConfig
from samovar.spec.dtype import DTypeName, KVDTypeName
from samovar.spec.model import ModelSpec

DEFAULT_KV_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Capacity:
    num_blocks: int
    max_model_len: int
    kv_bytes: int
    warnings: tuple[str, ...] = ()


def resolve_dtype(config: EngineProcessConfig, stored: DTypeName | None) -> DTypeName:
    """For PyTorch's operators. `stored`: `Checkpoint.stored_dtype`."""
    wanted = stored if config.dtype == "auto" else config.dtype
    return "bfloat16" if wanted == "bfloat16" else "float32"


def resolve_capacity(
    config: EngineProcessConfig, spec: ModelSpec, kv_dtype: KVDTypeName, available_bytes: int | None
) -> Capacity:
    """The pool always holds one request of `max_model_len`. Raises ConfigError where flags ask for more than fits."""
    context = spec.max_position_embeddings
    if config.max_model_len is not None and config.max_model_len > context:
        raise ConfigError(
            f"--max-model-len {config.max_model_len} is more than the checkpoint's context of {context} tokens",
            param="max_model_len",
        )
    wanted_len = config.max_model_len if config.max_model_len is not None else context
    block_bytes = spec.kv_bytes_per_token_in(kv_dtype) * config.block_size
    num_blocks, source = _num_blocks(config, wanted_len, block_bytes, available_bytes)
    held = num_blocks * config.block_size
    kv_bytes = num_blocks * block_bytes
    if held >= wanted_len:
        return Capacity(num_blocks, wanted_len, kv_bytes)
    room = f"the KV cache ({source}: {num_blocks} blocks of {config.block_size} tokens) holds {held} tokens"
    if config.max_model_len is not None:
        raise ConfigError(f"--max-model-len {wanted_len} does not fit: {room}", param="max_model_len")
    return Capacity(
        num_blocks, held, kv_bytes, (f"max_model_len is {held}, less than the checkpoint's {context}: {room}",)
    )


def resolve_threshold(config: EngineProcessConfig, budget: int) -> tuple[int, tuple[str, ...]]:
    """`long_prefill_token_threshold` beside a step of `budget` tokens, and warnings where it changed: a measured
    budget differs from start to start, and a flag that had an effect yesterday must not keep the engine from starting
    today. A clash between flags that the user gave is refused by the configuration itself."""
    threshold = config.long_prefill_token_threshold
    if config.max_num_batched_tokens is not None or threshold < budget:
        return threshold, ()
    warning = (
        f"--long-prefill-token-threshold {threshold} has no effect: max_num_batched_tokens is {budget}, as measured, "
        "and no chunk can be longer"
    )
    return 0, (warning,)


def _num_blocks(
    config: EngineProcessConfig, max_model_len: int, block_bytes: int, available_bytes: int | None
) -> tuple[int, str]:
    """How many blocks, and the words for where the number comes from."""
    if config.num_gpu_blocks_override is not None:
        return config.num_gpu_blocks_override, f"--num-gpu-blocks-override {config.num_gpu_blocks_override}"
    if config.kv_cache_memory_bytes is not None:
        num_blocks = config.kv_cache_memory_bytes // block_bytes
        source = f"--kv-cache-memory-bytes {config.kv_cache_memory_bytes}"
    else:
        budget = DEFAULT_KV_BYTES if available_bytes is None else min(DEFAULT_KV_BYTES, available_bytes // 2)
        usable = config.max_num_seqs * -(-max_model_len // config.block_size)
        num_blocks = min(budget // block_bytes, usable)
        source = f"{budget} bytes, chosen from free memory"
    if num_blocks < 1:
        raise ConfigError(
            f"the KV cache ({source}) is smaller than one block of {config.block_size} tokens ({block_bytes} bytes)",
            param="kv_cache_memory_bytes",
        )
    return num_blocks, source


def kv_namespace(fingerprint: bytes, kind: str, block_size: int) -> bytes:
    """16 bytes that differ whenever equal tokens would not have equal KV. `fingerprint` is the checkpoint's, `kind`
    names the numbers it is computed and kept in."""
    return digest((fingerprint, kind.encode(), str(block_size).encode()))
