"""Native kernels or PyTorch: what each flag, model and machine leads to, and every refusal. No torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samovar.base.errors import ConfigError
from samovar.kernels.cpu.native_library import NativeLibrary, available_cores
from samovar.runner.compute import Compute, resolve_compute
from samovar.runner.config import EngineProcessConfig
from samovar.spec.dtype import DTypeName
from samovar.spec.model import ModelSpec, RopeSpec

SPEC = ModelSpec("llama", 100, 64, 128, 2, 4, 2, 32, 1e-5, RopeSpec(1e4), max_position_embeddings=1000)
LIBRARY = NativeLibrary(("amx", "avx2", "scalar"))


def resolve(
    stored: DTypeName | None = None,
    spec: ModelSpec = SPEC,
    library: NativeLibrary | None = LIBRARY,
    **values: object,
) -> Compute:
    config = EngineProcessConfig(**{"model": "m", "cache_dir": "c", **values})  # type: ignore[arg-type]
    return resolve_compute(config, spec, stored, library)


@pytest.mark.parametrize("stored", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_native_wherever_it_can(stored: DTypeName | None, dtype: str) -> None:
    compute = resolve(stored, dtype=dtype, num_threads=3)
    assert compute == Compute("bfloat16", "auto", "amx", 3)
    assert resolve(stored, dtype=dtype).threads == available_cores() >= 1


@pytest.mark.parametrize("isa", ["amx", "avx2", "scalar"])
def test_an_instruction_set_by_name(isa: str) -> None:
    assert resolve(isa=isa).isa == isa


def test_float32_is_computed_with_torch() -> None:
    compute = resolve("bfloat16", dtype="float32", isa="avx2")
    assert (compute.isa, compute.dtype, compute.notes, compute.warnings) == (None, "float32", (), ())


@pytest.mark.parametrize(("stored", "dtype"), [(None, "float32"), ("bfloat16", "bfloat16"), ("float32", "float32")])
def test_without_the_library_as_before_and_one_warning(stored: DTypeName | None, dtype: str) -> None:
    compute = resolve(stored, library=None)
    assert (compute.isa, compute.dtype, compute.quantization) == (None, dtype, "none")
    assert len(compute.warnings) == 1 and "C++17 compiler" in compute.warnings[0] and "reinstall" in compute.warnings[0]
    assert resolve(stored, isa="torch").dtype == dtype and not resolve(stored, isa="torch").warnings


@pytest.mark.parametrize(
    ("spec", "block_size", "words"),
    [
        (replace(SPEC, head_dim=48), 16, "head dimension is 48"),
        (replace(SPEC, head_dim=288), 16, "head dimension is 288"),
        (replace(SPEC, intermediate_size=100), 16, "intermediate size is 100"),
        (replace(SPEC, num_heads=34), 16, "17 query heads"),
        (SPEC, 24, "--block-size is 24"),
    ],
)
def test_what_does_not_fit_runs_on_torch_and_says_why(spec: ModelSpec, block_size: int, words: str) -> None:
    compute = resolve(spec=spec, block_size=block_size)
    assert compute.isa is None and not compute.warnings
    assert len(compute.notes) == 1 and words in compute.notes[0]
    assert resolve(spec=spec, block_size=block_size, library=None).warnings == (), "a compiler would not help"
    with pytest.raises(ConfigError, match=words):
        resolve(spec=spec, block_size=block_size, quantization="int8")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"isa": "sse9"}, ["sse9", "amx, avx2, scalar"]),
        ({"isa": "sse9", "dtype": "float32"}, ["sse9", "amx, avx2, scalar"]),
        ({"isa": "amx", "library": None}, ["amx", "C++17 compiler"]),
        ({"quantization": "int8", "library": None}, ["int8", "native"]),
        ({"quantization": "int8", "dtype": "float32"}, ["int8", "float32"]),
        ({"quantization": "int8", "isa": "torch"}, ["int8", "torch"]),
        ({"kv_cache_dtype": "bfloat16", "dtype": "float32"}, ["--kv-cache-dtype", "bfloat16", "float32"]),
        ({"quantization": "int3"}, ["--quantization", "int3", "auto, none, int8"]),
        ({"kv_cache_dtype": "fp8"}, ["--kv-cache-dtype", "fp8", "int8"]),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(values: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(**values)  # type: ignore[arg-type]
    assert all(word in caught.value.message for word in words), caught.value.message


def test_kv_of_other_numbers_has_another_name() -> None:
    kinds = [resolve(quantization=q).kv_kind for q in ("auto", "none", "int8")]
    kinds += [resolve(dtype="float32").kv_kind, resolve("bfloat16", isa="torch").kv_kind]
    assert len(set(kinds)) == 5
    assert resolve(isa="amx").kv_kind != resolve(isa="scalar").kv_kind, "another instruction set rounds differently"
