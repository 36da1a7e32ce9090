"""GGUF weights: every family and stored type against transformers, and every way a file can be wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
import numpy as np
import pytest

pytest.importorskip("torch")
from tests.models.gguf_files import save_gguf
from tests.models.oracle import oracle_logits, run, save_tiny, some_ids
import torch

from samovar.base.errors import CheckpointError, UnsupportedFeature
from samovar.models.gguf_weights import gguf_name, hf_name, open_gguf_weights
from samovar.models.load import load_model
from samovar.models.locate import locate
from samovar.spec.gguf_file import GGUFHeader, GGUFTensor, read_gguf_header
from samovar.spec.model import ModelSpec, RopeSpec
from samovar.text.checkpoint import load_text

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
Kind = GGMLQuantizationType


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 16}),
    ],
)
def test_families(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    oracle = save_tiny(tmp_path / "hf", family, **changes)
    path = save_gguf(tmp_path / "x.gguf", oracle)
    ids = some_ids(60)
    model = load_model(locate(str(path), tmp_path), "float32")
    assert model.spec.tie_word_embeddings == changes.get("tie_word_embeddings", False)
    assert (run(model, ids) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0])
def test_stored_types(kind: Kind, tmp_path: Path) -> None:
    oracle = save_tiny(tmp_path / "hf", hidden_size=64, intermediate_size=96, num_attention_heads=4, head_dim=16)
    path = save_gguf(tmp_path / "x.gguf", oracle, kind)
    ids = some_ids(40)
    model = load_model(locate(str(path), tmp_path), "float32")
    assert (run(model, ids) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


def test_the_header_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary takes a while to read: what located the file hands its header on."""
    reads: list[Path] = []

    def counting(path: Path) -> GGUFHeader:
        reads.append(path)
        return read_gguf_header(path)

    path = save_gguf(tmp_path / "x.gguf", save_tiny(tmp_path / "hf"))
    for name in ("models.checkpoint", "text.checkpoint"):
        monkeypatch.setattr(f"samovar.{name}.read_gguf_header", counting)
    checkpoint = locate(str(path), tmp_path)
    load_model(checkpoint, "float32")
    with pytest.raises(CheckpointError, match="holds no tokenizer"):
        load_text(checkpoint.path, header=checkpoint.header)
    assert reads == [path]
    assert checkpoint.weight_files() == (path,) and checkpoint.stored_dtype() is None


def test_llama3_frequencies(tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling |= {"rope_theta": 500.0, "original_max_position_embeddings": 64}
    oracle = save_tiny(tmp_path / "hf", rope_parameters=scaling)
    plain = 1.0 / 500.0 ** (torch.arange(0, 8, 2) / 8)
    factors = plain / oracle.model.rotary_emb.inv_freq
    assert factors.max() > 2
    path = save_gguf(tmp_path / "x.gguf", oracle, extra={"rope_freqs.weight": factors})
    ids = some_ids(100)
    model = load_model(locate(str(path), tmp_path), "float32")
    assert (run(model, ids) - oracle_logits(oracle, ids)).abs().max() <= 1e-4


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_XS])
def test_k_quants_come_out_whole(kind: Kind, tmp_path: Path) -> None:
    """Read in parts, with an offset that is not aligned, against one call of gguf's dequantisation."""
    block, block_bytes = GGML_QUANT_SIZES[kind]
    rows, columns = 5000, 2 * block
    stored = np.random.default_rng(0).integers(0, 60, (rows, 2 * block_bytes), dtype=np.uint8)
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGU" + stored.tobytes())
    name = "token_embd.weight"
    header = GGUFHeader({}, {name: GGUFTensor(name, (rows, columns), int(kind), 3)})
    spec = ModelSpec("qwen2", rows, columns, 8, 1, 1, 1, 8, 1e-5, RopeSpec(1e4), 64)
    out = torch.empty(rows, columns)
    with open_gguf_weights(path, header, spec) as source:
        source.read_into("model.embed_tokens.weight", out)
    assert torch.equal(out, torch.from_numpy(dequantize(stored, kind)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("gguf")
    return save_gguf(folder / "x.gguf", save_tiny(folder / "hf")).read_bytes()


def load(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    load_model(locate(str(path), path.parent), "float32")


@pytest.mark.parametrize("missing", [1, 1000, 100_000])
def test_truncated(missing: int, whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path / "cut.gguf", whole[:-missing])
    message = str(caught.value)
    assert "cut.gguf" in message and "truncated" in message and str(len(whole) - missing) in message
    # the file's last tensor is padded to the alignment, which need not be there
    assert any(str(len(whole) - padding) in message for padding in range(32)) or missing < 32


def retyped(whole: bytes, name: bytes, kind: int) -> bytes:
    at = whole.index(name) + len(name) + 4 + 2 * 8
    return whole[:at] + kind.to_bytes(4, "little") + whole[at + 4 :]


@pytest.mark.parametrize(("kind", "shown"), [(24, "I8"), (999, "999")])
def test_unsupported_stored_types_are_named(kind: int, shown: str, whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        load(tmp_path / "x.gguf", retyped(whole, b"blk.1.ffn_up.weight", kind))
    assert shown in str(caught.value) and "blk.1.ffn_up.weight" in str(caught.value) and "x.gguf" in str(caught.value)


def test_rows_that_are_no_whole_blocks(whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up\.weight has shape \[80, 48\].*Q8_0 blocks of 32"):
        load(tmp_path / "x.gguf", retyped(whole, b"blk.1.ffn_up.weight", 8))


def test_missing_unexpected_and_misshapen(whole: bytes, tmp_path: Path) -> None:
    name = b"blk.1.ffn_up.weight"
    with pytest.raises(CheckpointError, match=r"x\.gguf: tensor blk\.1\.ffn_up\.weight is missing$"):
        load(tmp_path / "x.gguf", whole.replace(name, b"blk.1.ffn_xx.weight"))
    at = whole.index(name) + len(name) + 4
    swapped = whole[:at] + whole[at + 8 : at + 16] + whole[at : at + 8] + whole[at + 16 :]
    with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up\.weight has shape \[48, 80\]; .* ask for \[80, 48\]"):
        load(tmp_path / "x.gguf", swapped)
    oracle = save_tiny(tmp_path / "hf")
    for extra in ("blk.7.attn_norm.weight", "blk.0.attn_sinks.weight", "cls.weight"):
        path = save_gguf(tmp_path / "extra.gguf", oracle, extra={extra: torch.ones(48)})
        with pytest.raises(CheckpointError, match=f"extra.gguf: tensor {extra} is not part of a llama model"):
            load_model(locate(str(path), tmp_path), "float32")


def test_names_translate_both_ways() -> None:
    names = [
        "token_embd.weight",
        "output.weight",
        "blk.12.attn_q.bias",
        "blk.0.attn_k_norm.weight",
        "rope_freqs.weight",
    ]
    assert [gguf_name(hf_name(name)) for name in names] == names
    assert hf_name("blk.12.attn_q.bias") == "model.layers.12.self_attn.q_proj.bias"


def test_frequencies_beside_yarn_are_refused(tmp_path: Path) -> None:
    path = save_gguf(tmp_path / "x.gguf", save_tiny(tmp_path / "hf"), extra={"rope_freqs.weight": torch.ones(4)})
    checkpoint = locate(str(path), tmp_path)
    spec = replace(checkpoint.spec, rope=RopeSpec(1e4, "yarn", {"factor": 2.0}))
    with pytest.raises(UnsupportedFeature, match="rope_freqs"):
        load_model(replace(checkpoint, spec=spec), "float32")
