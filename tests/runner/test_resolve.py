"""Every "auto" of memory and length, and every refusal, by the arithmetic of a small spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from samovar.base.errors import ConfigError
from samovar.runner.config import EngineProcessConfig
from samovar.runner.memory import available_memory_bytes
from samovar.runner.resolve import kv_namespace, resolve_capacity, resolve_dtype, resolve_threshold
from samovar.spec.model import ModelSpec, RopeSpec

SPEC = ModelSpec("llama", 100, 64, 128, 2, 4, 2, 16, 1e-5, RopeSpec(1e4), max_position_embeddings=1000)
TOKEN = 2 * 2 * 2 * 16 * 4
"""Bytes of KV per token in float32: K and V, two layers, two heads of 16."""


def config(**values: object) -> EngineProcessConfig:
    return EngineProcessConfig(**{"model": "m", "cache_dir": "c", **values})  # type: ignore[arg-type]


def test_memory_by_default_is_half_of_what_is_free_but_no_more_than_usable() -> None:
    half = resolve_capacity(config(), SPEC, "float32", 2 * 100 * 16 * TOKEN + 5)
    assert half.num_blocks == 100 and half.kv_bytes == 100 * 16 * TOKEN and half.max_model_len == 1000
    assert resolve_capacity(config(max_num_seqs=2), SPEC, "float32", None).num_blocks == 2 * 63
    big = ModelSpec("llama", 100, 64, 128, 32, 8, 8, 128, 1e-5, RopeSpec(1e4), max_position_embeddings=100_000)
    assert resolve_capacity(config(), big, "bfloat16", 1 << 40).kv_bytes == 4 << 30


def test_bfloat16_halves_a_block() -> None:
    room = config(kv_cache_memory_bytes=16 * TOKEN * 100)
    assert resolve_capacity(room, SPEC, "float32", None).num_blocks == 100
    assert resolve_capacity(room, SPEC, "bfloat16", None).num_blocks == 200


def test_context_shrinks_to_the_pool_with_a_warning() -> None:
    small = resolve_capacity(config(num_gpu_blocks_override=10), SPEC, "float32", None)
    assert small.max_model_len == 160
    assert len(small.warnings) == 1 and "160" in small.warnings[0] and "1000" in small.warnings[0]


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ({"num_gpu_blocks_override": 10, "max_model_len": 161}, ("161", "160")),
        ({"kv_cache_memory_bytes": 16 * TOKEN, "max_model_len": 17}, ("17", "16")),
        ({"max_model_len": 1001}, ("1001", "1000")),
        ({"kv_cache_memory_bytes": 16 * TOKEN - 1}, (str(16 * TOKEN - 1), str(16 * TOKEN))),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(values: dict[str, int], numbers: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_capacity(config(**values), SPEC, "float32", None)
    assert all(number in caught.value.message for number in numbers)


def test_an_explicit_length_that_just_fits() -> None:
    fits = resolve_capacity(config(num_gpu_blocks_override=10, max_model_len=160), SPEC, "float32", None)
    assert fits.max_model_len == 160 and not fits.warnings


@pytest.mark.parametrize(
    ("asked", "stored", "expected"),
    [
        ("auto", "bfloat16", "bfloat16"),
        ("auto", None, "float32"),
        ("float32", "bfloat16", "float32"),
        ("bfloat16", None, "bfloat16"),
    ],
)
def test_dtype(asked: str, stored: str | None, expected: str) -> None:
    assert resolve_dtype(config(dtype=asked), stored) == expected


@pytest.mark.parametrize(
    ("values", "budget", "expected"),
    [
        ({"long_prefill_token_threshold": 63}, 64, 63),
        ({"long_prefill_token_threshold": 64}, 64, 0),
        ({"long_prefill_token_threshold": 0}, 64, 0),
        ({"long_prefill_token_threshold": 63, "max_num_batched_tokens": 64}, 64, 63),
    ],
)
def test_a_threshold_beside_a_measured_budget(values: dict[str, int], budget: int, expected: int) -> None:
    threshold, warnings = resolve_threshold(config(**values), budget)
    assert threshold == expected
    assert len(warnings) == (threshold != values["long_prefill_token_threshold"])


@pytest.mark.parametrize(
    "values",
    [
        {"long_prefill_token_threshold": 64, "max_num_batched_tokens": 64},
        {"long_prefill_token_threshold": 64, "max_num_seqs": 1},
        {"prefill_schedule_interval": 2, "max_num_seqs": 1},
    ],
)
def test_what_would_have_no_effect_is_refused_before_anything_is_loaded(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="no effect"):
        config(**values)


def test_namespace_tells_apart_what_makes_kv_differ() -> None:
    names = {
        kv_namespace(*fields)
        for fields in [(b"a", "float32", 16), (b"b", "float32", 16), (b"a", "bfloat16", 16), (b"a", "float32", 32)]
    }
    assert len(names) == 4 and all(len(name) == 16 for name in names)
    assert kv_namespace(b"a", "float32", 16) in names


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dtype": "int8"}, "--dtype must be one of auto, float32, bfloat16, got 'int8'"),
        ({"device": "cuda"}, "--device must be one of cpu, got 'cuda'"),
        ({"block_size": 0}, "--block-size must be at least 1, got 0"),
        ({"max_model_len": 0}, "--max-model-len must be at least 1, got 0"),
        ({"max_num_queued_reqs": -1}, "--max-num-queued-reqs must be at least 0, got -1"),
    ],
)
def test_values_no_machine_could_use(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**values)


def test_memory_is_the_lesser_of_machine_and_control_group(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    assert available_memory_bytes(proc, cgroup) is None
    proc.mkdir()
    (proc / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:      500 kB\n")
    assert available_memory_bytes(proc, cgroup) == 500 * 1024
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("1000\n")
    (cgroup / "memory.stat").write_text("anon 700\ninactive_file 300\n")
    assert available_memory_bytes(proc, cgroup) == 500 * 1024
    (cgroup / "memory.max").write_text("301000\n")
    assert available_memory_bytes(proc, cgroup) == 300_300
