"""Every family and setting against transformers in float32, from files that transformers wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from tests.models.oracle import oracle_logits, run, save_tiny, some_ids
import torch

from samovar.kernels.table import CPU, REFERENCE, Ops
from samovar.models.load import load_model
from samovar.models.locate import locate

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama MHA": ("llama", {"num_key_value_heads": 6}),
    "llama MQA": ("llama", {"num_key_value_heads": 1}),
    "llama wide heads": ("llama", {"head_dim": 20}),
    "llama linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}}),
    "llama llama3": (
        "llama",
        {"rope_parameters": LLAMA3 | {"rope_theta": 500.0, "original_max_position_embeddings": 64}},
    ),
    "llama yarn": ("llama", {"rope_parameters": YARN | {"rope_theta": 1e4}, "head_dim": 32}),
    "llama yarn untruncated": (
        "llama",
        {"rope_parameters": YARN | {"rope_theta": 1e4, "truncate": False}, "head_dim": 32},
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "qwen3 with bias": ("qwen3", {"attention_bias": True, "head_dim": 16}),
    "qwen3 yarn": ("qwen3", {"rope_parameters": YARN | {"rope_theta": 1e6}}),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, tmp_path: Path) -> None:
    family, changes = CASES[case]
    oracle = save_tiny(tmp_path, family, **changes)
    ids = some_ids(150)
    wanted = oracle_logits(oracle, ids)
    assert wanted.std() > 1  # or the tolerance would mean nothing
    model = load_model(locate(str(tmp_path), tmp_path), "float32")
    assert (run(model, ids) - wanted).abs().max() <= 1e-4
    assert (run(model, ids, chunk=40, block_tokens=5, scattered=True) - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("ops", [REFERENCE, CPU], ids=["reference", "cpu"])
def test_every_column_of_the_table_gives_the_model(ops: Ops, tmp_path: Path) -> None:
    oracle = save_tiny(tmp_path, "qwen3")
    model = load_model(locate(str(tmp_path), tmp_path), "float32", ops)
    ids = some_ids(60)
    assert (run(model, ids, chunk=25) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_bfloat16_follows_float32(family: str, tmp_path: Path) -> None:
    save_tiny(tmp_path, family)
    checkpoint, ids = locate(str(tmp_path), tmp_path), some_ids(60)
    exact = run(load_model(checkpoint, "float32"), ids)
    rounded = run(load_model(checkpoint, "bfloat16"), ids)
    assert rounded.dtype == torch.float32
    # 8-bit weights and activations through three random layers: a few percent of the logits' spread
    assert (rounded - exact).abs().mean() < 0.1 * exact.std()
