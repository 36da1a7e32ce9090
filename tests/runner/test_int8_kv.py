"""`--kv-cache-dtype int8` from the flag to the pool: nearly twice the blocks for the same memory, a name of its own for
the KV, and a refusal where there are no native kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import needs_native
from tests.models.oracle import save_tiny
import torch

from samovar.base.errors import ConfigError
from samovar.kernels.cpu.native_library import native_library
from samovar.models.load import new_tiled_cache
from samovar.runner.boot import Booted, boot
from samovar.runner.compute import resolve_compute
from samovar.runner.config import EngineProcessConfig
from samovar.runner.resolve import kv_namespace, resolve_capacity
from samovar.spec.model import ModelSpec, RopeSpec

pytestmark = pytest.mark.torch

SPEC = ModelSpec("llama", 100, 64, 128, 2, 4, 2, 64, 1e-5, RopeSpec(1e4), max_position_embeddings=100_000)


def config(**values: object) -> EngineProcessConfig:
    return EngineProcessConfig(**{"model": "m", "cache_dir": "c", **values})  # type: ignore[arg-type]


@pytest.mark.parametrize("block_tokens", [16, 48])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_the_figure_for_memory_is_what_the_pool_takes(block_tokens: int, dtype: str) -> None:
    cache = new_tiled_cache(SPEC, 5, block_tokens, dtype)  # type: ignore[arg-type]
    taken = sum(pool.nbytes for pool in (*cache.keys, *cache.values))
    assert taken == 5 * block_tokens * SPEC.kv_bytes_per_token_in(dtype)  # type: ignore[arg-type]
    assert {len(pool) for pool in (*cache.keys, *cache.values)} == {5}, "a block is the first dimension"
    assert all(int(pool.view(torch.uint8).max()) == 0 for pool in (*cache.keys, *cache.values))


@pytest.mark.parametrize(("head_dim", "times"), [(64, 128 / 68), (128, 256 / 132)])
def test_capacity_nearly_doubles(head_dim: int, times: float) -> None:
    spec, room = replace(SPEC, head_dim=head_dim), config(kv_cache_memory_bytes=64 << 20, max_model_len=1000)
    sixteen, eight = (resolve_capacity(room, spec, dtype, None) for dtype in ("bfloat16", "int8"))
    assert eight.num_blocks / sixteen.num_blocks == pytest.approx(times, rel=1e-3)
    assert eight.kv_bytes <= 64 << 20


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"isa": "torch"}, "SAMOVAR_ISA is torch"),
        ({"dtype": "float32"}, "computed with PyTorch"),
        ({"block_size": 24}, "--block-size is 24"),
    ],
)
def test_refused_without_native_kernels(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match="--kv-cache-dtype int8 needs native kernels") as caught:
        resolve_compute(config(kv_cache_dtype="int8", **values), SPEC, "bfloat16", None)
    assert reason in caught.value.message and caught.value.param == "kv_cache_dtype"


@needs_native
def test_kv_in_8_bits_has_a_name_of_its_own() -> None:
    kinds = [
        resolve_compute(config(kv_cache_dtype=dtype), SPEC, None, native_library()).kv_kind
        for dtype in ("auto", "bfloat16", "int8")
    ]
    assert kinds[0] == kinds[1] != kinds[2]
    assert kv_namespace(b"a", kinds[0], 16) != kv_namespace(b"a", kinds[2], 16)


def start(folder: Path, dtype: str) -> Booted:
    settings = config(
        model=str(folder), cache_dir=str(folder), kv_cache_dtype=dtype, kv_cache_memory_bytes=1 << 20,
        max_num_batched_tokens=64, num_threads=1, monokernel="on",
    )  # fmt: skip
    return boot(settings, lambda text: None, lambda: None)


@needs_native
def test_settings_show_it(tmp_path: Path) -> None:
    """They are the labels of `vllm:cache_config_info`."""
    save_tiny(tmp_path, intermediate_size=96, head_dim=32, max_position_embeddings=128)
    blocks = {}
    for dtype, shown in (("auto", "bfloat16"), ("int8", "int8")):
        booted = start(tmp_path, dtype)
        booted.close(5)
        assert booted.info.settings["kv-cache-dtype"] == shown and booted.info.settings["dtype"] == "bfloat16"
        blocks[shown] = int(booted.info.settings["num-gpu-blocks"])
    assert blocks["int8"] / blocks["bfloat16"] == pytest.approx(64 / 36, rel=0.01)
