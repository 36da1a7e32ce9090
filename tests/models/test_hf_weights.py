"""Safetensors folders: single, sharded, and every way they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
from safetensors.torch import load_file, save_file
from tests.models.oracle import oracle_logits, run, save_tiny, some_ids
import torch
from transformers import AutoModelForCausalLM

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.models.load import load_model
from samovar.models.locate import locate

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def load(folder: Path) -> None:
    load_model(locate(str(folder), folder), "float32")


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replaces tensors of model.safetensors; None removes one. "__" stands for "."."""
    tensors = load_file(folder / "model.safetensors")
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")


def test_shards(tmp_path: Path) -> None:
    oracle = save_tiny(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ids = some_ids(30)
    model = load_model(locate(str(tmp_path), tmp_path), "float32")
    assert (run(model, ids) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files(dtype: torch.dtype, tmp_path: Path) -> None:
    save_tiny(tmp_path).to(dtype).save_pretrained(tmp_path)
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = some_ids(30)
    model = load_model(locate(str(tmp_path), tmp_path), "float32")
    assert (run(model, ids) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save_tiny(tmp_path, max_shard_size="40KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"{shard.name}: this shard is missing"):
        load(tmp_path)


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    save_tiny(tmp_path, max_shard_size="40KB")
    index = tmp_path / "model.safetensors.index.json"
    entries = json.loads(index.read_text())
    shard = entries["weight_map"]["model.norm.weight"]
    tensors = load_file(tmp_path / shard)
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / shard)
    with pytest.raises(CheckpointError, match=rf"{shard}: tensor model\.norm\.weight is missing"):
        load(tmp_path)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match=r"index\.json: field weight_map"):
        load(tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    for size in (len(data) - 1, 1000, 5, 0):
        path.write_bytes(data[:size])
        with pytest.raises(
            CheckpointError, match=rf"model\.safetensors: not a whole safetensors file \({size} bytes\)"
        ):
            load(tmp_path)


def test_missing_misshapen_and_unexpected_tensors_are_named(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(tmp_path, model__layers__1__mlp__up_proj__weight=None)
    with pytest.raises(CheckpointError, match=f"tensor {name} is missing$"):
        load(tmp_path)
    rewrite(tmp_path, model__layers__1__mlp__up_proj__weight=torch.zeros(80, 40))
    with pytest.raises(CheckpointError, match=rf"{name} has shape \[80, 40\]; the settings ask for \[80, 48\]"):
        load(tmp_path)
    rewrite(tmp_path, model__layers__1__mlp__up_proj__weight=torch.zeros(80, 48))
    load(tmp_path)
    rewrite(tmp_path, model__layers__0__self_attn__q_proj__bias=torch.zeros(48))
    with pytest.raises(
        CheckpointError, match=r"safetensors: tensor model\.layers\.0\.self_attn\.q_proj\.bias is not part"
    ):
        load(tmp_path)


def test_harmless_leftovers_are_let_through(tmp_path: Path) -> None:
    oracle = save_tiny(tmp_path, tie_word_embeddings=True)
    rewrite(
        tmp_path,
        model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(4),
        lm_head__weight=torch.zeros(120, 48),
    )
    ids = some_ids(20)
    model = load_model(locate(str(tmp_path), tmp_path), "float32")
    assert (run(model, ids) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


def test_an_output_matrix_is_needed_unless_tied(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    rewrite(tmp_path, lm_head__weight=None)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing"):
        load(tmp_path)


def test_other_dtypes_and_formats(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    rewrite(tmp_path, model__norm__weight=torch.zeros(48, dtype=torch.float8_e4m3fn))
    with pytest.raises(UnsupportedFeature, match=r"model\.norm\.weight is F8_E4M3"):
        load(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        load(tmp_path)
