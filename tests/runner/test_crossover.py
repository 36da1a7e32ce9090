"""The limit of mono decode: measured on a tiny model, kept, read back; unusable files cost a measurement only."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.kernels.packed import native, native_levels, needs_native
from tests.models.oracle import save_tiny

from samovar.models.load import load_packed_model, new_tiled_cache
from samovar.models.locate import locate
from samovar.models.mono import MAX_ROWS
from samovar.runner import crossover
from samovar.runner.crossover import crossover_key, load_crossover, measure_crossover, save_crossover, scratch_blocks

pytestmark = pytest.mark.torch

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}


@needs_native
@pytest.mark.parametrize(("worth", "expected"), [(1e9, MAX_ROWS), (0.0, 0)])
def test_measuring(worth: float, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossover, "_WORTH", worth)
    save_tiny(tmp_path, "llama", **SIZES)
    checkpoint = locate(str(tmp_path), tmp_path.parent)
    model = load_packed_model(checkpoint, native(native_levels()[0]), "auto", 512)
    assert measure_crossover(model, new_tiled_cache(model.spec, scratch_blocks(16), 16)) == expected


def test_kept_and_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "monokernel"
    key = crossover_key(b"checkpoint", "bfloat16", "amx", 2)
    assert load_crossover(folder, key) is None
    save_crossover(folder, key, 16)
    assert load_crossover(folder, key) == 16
    assert [path.name for path in folder.iterdir()] == [f"{key}.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"max_rows": "many"}', '{"max_rows": 65}', '{"max_rows": -1}'])
def test_what_cannot_be_used_is_measured_again(text: str, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(text, encoding="utf-8")
    assert load_crossover(tmp_path, "key") is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    save_crossover(tmp_path / "file", "key", 4)
    assert load_crossover(tmp_path / "file", "key") is None


@pytest.mark.parametrize(
    "other",
    [(b"other", "bfloat16", "amx", 2), (b"checkpoint", "int8", "amx", 2), (b"checkpoint", "bfloat16", "avx2", 2)],
)
def test_keys_differ(other: tuple[bytes, str, str, int]) -> None:
    assert crossover_key(*other) != crossover_key(b"checkpoint", "bfloat16", "amx", 2)
