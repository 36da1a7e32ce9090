"""`samovar bench kernels`, `decode` and `prefill` on a tiny model: what is refused, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from samovar.base.errors import ConfigError
from samovar.bench.compute import attention_ops, limits, linear_ops, other_ops
from samovar.bench.compute.decode import DecodeOptions, decode_batch, needed_blocks
from samovar.bench.compute.kernels import KernelOptions
from samovar.bench.compute.linear_ops import FORMATS, random_matrix
from samovar.bench.compute.prefill import PrefillOptions, prompt_batches
from samovar.bench.compute.setting import ComputeOptions, fill, find_setting
from samovar.cli.bench import app
from samovar.kernels.cpu.native_library import native_library
from samovar.kernels.ref.records import packed_bytes, unpack
from samovar.models.load import new_tiled_cache
from tests.bench.compute.sizes import SPEC
from tests.kernels.packed import needs_native

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models.oracle import save_tiny  # transformers take seconds to import

    path = tmp_path_factory.mktemp("tiny")
    save_tiny(
        path,
        vocab_size=SPEC.vocab_size,
        hidden_size=SPEC.hidden_size,
        intermediate_size=SPEC.intermediate_size,
        num_hidden_layers=2,
        num_attention_heads=SPEC.num_heads,
        num_key_value_heads=SPEC.num_kv_heads,
        head_dim=SPEC.head_dim,
        max_position_embeddings=SPEC.max_position_embeddings,
    )
    return path


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are measured, but of little: a GiB takes longer than all the rest."""
    monkeypatch.setattr(limits, "SMALLEST_ARRAY_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "last_level_cache_bytes", lambda: None)
    monkeypatch.setattr(limits, "GEMM_SIZE", 64)
    monkeypatch.setattr(limits, "PEAK_SAMPLE_S", 1e-4)
    monkeypatch.setattr(linear_ops, "DECODE_ROWS", (1, 3))
    monkeypatch.setattr(linear_ops, "PREFILL_TOKENS", 20)
    monkeypatch.setattr(attention_ops, "DECODE", ((2, 20),))
    monkeypatch.setattr(attention_ops, "PREFILL", ((20, 0), (20, 30)))
    monkeypatch.setattr(other_ops, "TOKENS", (2,))


def options(model: Path | str = "m", **changes: Any) -> ComputeOptions:
    return ComputeOptions(**{"model": str(model), "cache_dir": "c", "isa": "auto", "num_threads": 1} | changes)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def written(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    assert {"revision", "machine", "config", "seed", "repeats", "measured"} <= set(data)
    assert data["measured"]["limits"]["read_bytes_per_s"] > 0
    assert all(peak["per_s"] > 0 for peak in data["measured"]["limits"]["peaks"].values())
    assert str(path.parent) not in path.read_text(), "a result that is kept must not name this machine's folders"
    return data


@needs_native
def test_kernels(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    run("kernels", "--model", str(folder), "--threads", "1", "--repeats", "1", "--json", str(out))
    data = written(out)
    figures = data["measured"]["figures"]
    names = {figure["op"] for figure in figures}
    assert {f"linears {format}" for format in FORMATS} <= names
    assert {"attention, decode", "attention, prefill", "rms_norm", "rope", "write_kv", "embed q8", "argmax"} <= names
    assert all(figure["median_s"] >= figure["best_s"] > 0 for figure in figures)
    assert all((figure["share"] is None) == (figure["bound_by"] == "cache") for figure in figures)
    q8 = next(figure for figure in figures if figure["op"] == "linears q8" and figure["tokens"] == 3)
    assert q8["read_bytes"] == sum(
        packed_bytes("q8", n, k) for n, k in [(256, 64), (64, 128), (192, 64), (64, 96)] * 2 + [(100, 64)]
    )
    assert data["config"]["isa"] == native_library().isa_levels[0]  # type: ignore[union-attr]


@needs_native
def test_decode(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "decode.json"
    common = ("--model", str(folder), "--threads", "1", "--repeats", "1", "--json", str(out))
    text = run("decode", *common, "--rows", "1,3", "--depth", "0,40")
    assert "mono / torch" in text
    figures = written(out)["measured"]["figures"]
    assert [(one["tokens"], one["depth"]) for one in figures] == [(1, 0), (3, 0), (1, 40), (3, 40)]
    assert all(set(one["paths"]) == {"mono", "normal", "torch"} for one in figures)
    run("decode", *common, "--rows", "2", "--depth", "5", "--no-torch")
    assert set(written(out)["measured"]["figures"][0]["paths"]) == {"mono", "normal"}


@needs_native
def test_prefill(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "prefill.json"
    common = ("--model", str(folder), "--threads", "1", "--repeats", "1", "--json", str(out))
    run("prefill", *common, "--tokens", "50,70", "--max-num-batched-tokens", "32")
    data = written(out)
    assert data["config"]["max_num_batched_tokens"] == 32
    assert [one["tokens"] for one in data["measured"]["figures"]] == [50, 70]
    assert set(data["measured"]["figures"][0]["paths"]) == {"normal", "torch"}


@needs_native
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kernels", "--isa", "mmx"), "--isa must be auto or one of"),
        (("kernels", "--isa", "torch"), "--isa is torch"),
        (("decode", "--depth", "256"), "--depth 256: the model's context is 256"),
        (("prefill", "--tokens", "257"), "--tokens 257: the model's context is 256"),
        (("decode", "--rows", "1,x"), "--rows takes whole numbers"),
        (("decode", "--depth", ""), "--depth takes whole numbers"),
        (("decode", "--quantization", "int3"), "--quantization must be one of"),
    ],
)
def test_refuses(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, [*arguments, "--model", str(folder)], catch_exceptions=False)


def test_refuses_numbers_out_of_range() -> None:
    with pytest.raises(ConfigError, match="--repeats must be at least 1, got 0"):
        options(repeats=0)
    with pytest.raises(ConfigError, match="--rows takes 1 to 64, got 65"):
        DecodeOptions(options(), (1, 65), (0,))
    with pytest.raises(ConfigError, match="--depth must be at least 0, got -1"):
        DecodeOptions(options(), (1,), (-1,))
    with pytest.raises(ConfigError, match="--tokens must be at least 1, got 0"):
        PrefillOptions(options(), (0,))
    with pytest.raises(ConfigError, match="--max-num-batched-tokens must be at least 1, got 0"):
        PrefillOptions(options(), (1,), 0)
    with pytest.raises(ConfigError, match=r"--only takes linear, attention, other, got all"):
        KernelOptions(options(), groups=("linear", "all"))
    with pytest.raises(ConfigError, match=r"--formats takes bf16, .*, got nothing"):
        KernelOptions(options(), formats=())


def test_says_what_memory_is_missing() -> None:
    decode = DecodeOptions(options(), (4, 64), (0, 200))
    token_bytes = SPEC.kv_bytes_per_token(2)
    assert needed_blocks(decode, SPEC, None) == 64 * 13
    needed = 64 * 13 * 16 * token_bytes * 2
    assert needed_blocks(decode, SPEC, int(needed / 0.8) + 1) == 64 * 13
    with pytest.raises(ConfigError, match=r"--rows 64 at --depth 200 needs .* GB of KV \(--no-torch halves it\)"):
        needed_blocks(decode, SPEC, int(needed / 0.8) - 1)


def test_needs_native_kernels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samovar.bench.compute.setting.native_library", lambda: None)
    with pytest.raises(ConfigError, match="there are none to measure: this installation has no native kernels"):
        find_setting(options(folder))


@pytest.mark.parametrize("format", FORMATS)
def test_random_matrices_are_ordinary_numbers(format: Any) -> None:
    data = np.empty(packed_bytes(format, 48, 128), dtype=np.uint8)
    random_matrix(format, data, 48, 128, np.random.default_rng(0))
    values = np.abs(unpack(format, data, 48, 128))
    assert np.isfinite(values).all() and values.max() < 4
    assert (values[values > 0] > 1e-4).all() and values.std() > 0.01


def test_every_page_of_a_filled_cache_is_its_own() -> None:
    cache = new_tiled_cache(SPEC, 3, 16)
    fill(cache, 0)
    assert all((tensor != 0).any(dim=(1, 2, 3, 4, 5)).all() for tensor in (*cache.keys, *cache.values))
    assert all(torch.isfinite(tensor).all() for tensor in (*cache.keys, *cache.values))


def test_decode_rows_share_no_block() -> None:
    cache = new_tiled_cache(SPEC, 12, 16)
    batch = decode_batch(SPEC, 4, 32, cache, 0)
    blocks = [block for table in batch.rows.tables for block in table.tolist()]
    assert sorted(blocks) == list(range(12))
    assert batch.slots.tolist() == [(3 * row + 2) * 16 for row in range(4)]
    assert batch.positions.tolist() == [32] * 4


def test_a_prompt_in_chunks() -> None:
    batches = prompt_batches(SPEC, 50, 20, 16, 0)
    assert [len(batch.token_ids) for batch in batches] == [20, 20, 10]
    assert torch.cat([batch.slots for batch in batches]).tolist() == list(range(50))
    assert [batch.logit_rows.tolist() for batch in batches] == [[], [], [9]]


def test_the_array_to_read_is_larger_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALLEST_ARRAY_BYTES", 1 << 30)
    assert limits.array_bytes(None, None) == 1 << 30
    assert limits.array_bytes(480 << 20, None) == 4 * (480 << 20)
    assert limits.array_bytes(480 << 20, 4 << 30) == 1 << 30
